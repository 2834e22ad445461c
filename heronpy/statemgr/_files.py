"""The state manager in files: nothing to install, and safe between processes.

How it keeps its promises:

- A node is a file that is never edited: every version is a new inode, written aside, synced and renamed over the name.
  So a reader sees one version whole, and an open descriptor pins a version's identity (its inode number cannot be used
  again), which is how a watch tells versions apart without trusting the clock.
- An ephemeral node has its owner's execute bit set, and its owner holds an flock on the inode. The kernel lets it go
  when the last descriptor is closed, however the process ends. Who reads an ephemeral file and gets the lock knows that
  it is left over. The lock is taken before the file gets its name: no one ever sees a live node unlocked. Descriptors
  are close-on-exec, and forked children close them: a child must not keep its parent's nodes alive.
- Changes (not reads) take turns through an flock on `.mutex` for the microseconds of look-and-rename.

A stopped process (SIGSTOP) keeps its ephemeral nodes: there is no session timeout here. On NFS all this needs flock
support of the server (Linux: NFSv4, or v3 with lockd).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heronpy.errors import AlreadyExistsError, ConfigError, StateError
from heronpy.statemgr._base import Kind, StateManager, check_node
from heronpy.statemgr._watch import Watch

log = logging.getLogger(__name__)

_EPHEMERAL = stat.S_IXUSR
_MUTEX = ".mutex"
_MUTEX_RETRY_S = 0.002
_TEMP_SUFFIX = ".tmp"
_TEMP_AGE_S = 600.0
_READ_RETRIES = 1000
_JOIN_S = 5.0

_Signature = tuple[int, int, int, int, int]

# Between the open and the registration of a locked descriptor no other thread may fork: the child would not know that
# it has to close it.
_fork_guard = threading.Lock()
_managers: weakref.WeakSet[FileStateManager] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    _fork_guard.release()
    for manager in list(_managers):
        manager._forget_owned()


os.register_at_fork(
    before=_fork_guard.acquire,
    after_in_parent=_fork_guard.release,
    after_in_child=_after_fork_in_child,
)


@dataclass(slots=True)
class _Seen:
    """The version of a node that a watch saw last. `fd` keeps its inode number from being used again."""

    watch: Watch
    path: str
    fd: int = -1
    signature: _Signature | None = None
    failed: bool = False

    def replace(self, fd: int, signature: _Signature | None) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.signature = fd, signature


class FileStateManager(StateManager):
    """State in files below `root`, shared by all processes that see the directory."""

    def __init__(self, root: str | Path, *, call_timeout_s: float = 10.0, poll_interval_s: float = 0.1) -> None:
        """Open the tree, made where it is missing.

        Args:
            root: The directory. `~` is the user's home.
            call_timeout_s: How long a change waits for other processes' changes.
            poll_interval_s: How often watched files are looked at. Costs one stat a watch.

        Raises:
            ConfigError: no root is given.
            StateError: the root cannot be made or read.
        """
        super().__init__()
        if not str(root):
            raise ConfigError("the file state manager needs a root path (heron.statemgr.root.path)")
        self._root = os.path.abspath(os.path.expanduser(root))
        self._call_timeout_s = call_timeout_s
        self._poll_interval_s = poll_interval_s
        self._owned: dict[str, int] = {}  # path of an ephemeral node of ours -> its locked descriptor
        self._watches: dict[Watch, _Seen] = {}
        self._watches_lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        with self._errors("open"):
            for kind in Kind:
                directory = os.path.join(self._root, kind.value)
                os.makedirs(directory, exist_ok=True)
                _sweep_temps(directory)
        _managers.add(self)

    # Reading

    def get(self, kind: Kind, topology: str) -> bytes | None:
        path = self._path(kind, topology)
        with self._errors(f"read {kind.value}/{topology}"):
            fd = _open_live(path)
            if fd < 0:
                return None
            try:
                return _read(fd)
            finally:
                os.close(fd)

    def list(self, kind: Kind) -> list[str]:
        self._check_usable()
        directory = os.path.join(self._root, kind.value)
        with self._errors(f"list {kind.value}"):
            return sorted(n for n in os.listdir(directory) if not n.startswith(".") and self._exists(directory, n))

    @staticmethod
    def _exists(directory: str, name: str) -> bool:
        fd = _open_live(os.path.join(directory, name))
        if fd >= 0:
            os.close(fd)
        return fd >= 0

    # Changing

    def set(self, kind: Kind, topology: str, value: bytes) -> None:
        path = self._path(kind, topology)
        with self._errors(f"write {kind.value}/{topology}"), _temp(path, value) as temp:
            with self._mutex():
                own = path in self._owned
                if not own and _is_live_ephemeral(path):
                    raise AlreadyExistsError(
                        f"{kind.value}/{topology} belongs to another live process: only its owner may change it"
                    )
                self._publish(temp, path, ephemeral=own)
            _sync_directory(path)

    def create(self, kind: Kind, topology: str, value: bytes, *, ephemeral: bool = False) -> None:
        path = self._path(kind, topology)
        with self._errors(f"create {kind.value}/{topology}"), _temp(path, value) as temp:
            with self._mutex():
                fd = _open_live(path)
                if fd >= 0:
                    os.close(fd)
                    raise AlreadyExistsError(f"{kind.value}/{topology} exists already")
                self._publish(temp, path, ephemeral=ephemeral)
            _sync_directory(path)

    def delete(self, kind: Kind, topology: str) -> bool:
        path = self._path(kind, topology)
        with self._errors(f"delete {kind.value}/{topology}"):
            with self._mutex():
                fd = _open_live(path)
                if fd >= 0:
                    os.close(fd)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                self._disown(path)
            _sync_directory(path)
        return fd >= 0

    def _delete_own(self, kind: Kind, name: str, value: bytes) -> bool:
        path = self._path(kind, name)
        with self._errors(f"delete {kind.value}/{name}"):
            try:
                with self._mutex():
                    ours = self._is_ours(path)
                    if ours:
                        os.unlink(path)
            finally:
                # Whatever happened to the name: without our lock the node counts as gone.
                self._disown(path)
        return ours

    def _publish(self, temp: str, path: str, *, ephemeral: bool) -> None:
        """Give a written file its name. The caller holds the mutex."""
        self._check_usable()  # again: `close` may have come between, and nobody would end this node
        if not ephemeral:
            os.rename(temp, path)
            self._disown(path)  # ours, but deleted by somebody else meanwhile
            return
        fd = self._open_locked(temp)
        try:
            os.rename(temp, path)
        except OSError:
            os.close(fd)
            raise
        self._disown(path)
        self._owned[path] = fd

    def _open_locked(self, temp: str) -> int:
        with _fork_guard:
            fd = os.open(temp, os.O_RDWR)
            self._owned[temp] = fd
        try:
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | _EPHEMERAL)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        finally:
            del self._owned[temp]
        return fd

    def _disown(self, path: str) -> None:
        fd = self._owned.pop(path, -1)
        if fd >= 0:
            os.close(fd)

    def _is_ours(self, path: str) -> bool:
        fd = self._owned.get(path, -1)
        found = _signature(path)
        return fd >= 0 and found is not None and found[:2] == _signature_of(os.fstat(fd))[:2]

    def _forget_owned(self) -> None:
        """In a forked child: the parent's nodes are the parent's alone."""
        while self._owned:
            os.close(self._owned.popitem()[1])

    # Watching

    def watch(self, kind: Kind, topology: str, callback: Callable[[bytes | None], None]) -> Watch:
        path = self._path(kind, topology)
        watch = Watch(f"{kind.value}/{topology}", callback, self._wake.set)
        with self._watches_lock:
            self._watches[watch] = _Seen(watch, path)
            if self._thread is None:
                self._thread = threading.Thread(target=self._poll_all, name="statemgr-files", daemon=True)
                self._thread.start()
        self._wake.set()
        return watch

    def _poll_all(self) -> None:
        try:
            while not self._closed:
                with self._watches_lock:
                    watched = list(self._watches.values())
                for seen in watched:
                    if seen.watch.cancelled:
                        self._drop(seen)
                    elif not self._closed:
                        self._poll(seen)
                self._wake.wait(self._poll_interval_s if watched else None)
                self._wake.clear()
        finally:
            for seen in list(self._watches.values()):
                self._drop(seen)

    def _drop(self, seen: _Seen) -> None:
        with self._watches_lock:
            self._watches.pop(seen.watch, None)
        seen.replace(-1, None)

    def _poll(self, seen: _Seen) -> None:
        try:
            found = _signature(seen.path)
            if found is not None and found == seen.signature and _is_live(seen.fd):
                return
            value = None
            fd = -1 if found is None else _open_live(seen.path)
            seen.replace(fd, None)
            if fd >= 0:
                # Of the descriptor, not of the name: a version that comes between is found by the next look. And what
                # cannot be read has not been seen.
                value = _read(fd)
                seen.signature = _signature_of(os.fstat(fd))
        except Exception as e:  # whatever it is: the other watches need this thread, and nobody would notice its end
            if not seen.failed:
                log.warning("%s cannot be read, its watch waits: %s", seen.path, e)
            seen.failed = True
            return
        seen.failed = False
        seen.watch.deliver(value)

    # Ending, and shared parts

    def _close(self) -> None:
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)
        try:
            if self._owned:
                with self._mutex():
                    for path in list(self._owned):
                        if self._is_ours(path):
                            os.unlink(path)
        except (OSError, StateError) as e:
            log.warning("ephemeral files of %s are left over (they count as gone): %s", self._root, e)
        self._forget_owned()

    def _path(self, kind: Kind, name: str) -> str:
        self._check_usable()
        return os.path.join(self._root, kind.value, check_node(kind, name))

    @contextlib.contextmanager
    def _mutex(self) -> Iterator[None]:
        deadline_s = time.monotonic() + self._call_timeout_s
        fd = os.open(os.path.join(self._root, _MUTEX), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline_s:
                        raise StateError(
                            f"another process has held {self._root}/{_MUTEX} for {self._call_timeout_s:g} s: "
                            "is one of them stopped?"
                        ) from None
                time.sleep(_MUTEX_RETRY_S)
            yield
        finally:
            # A child forked in between shares the descriptor; unlock, so that it cannot hold the mutex.
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise StateError(f"cannot {what} in the state root {self._root}: {e.strerror}") from e


def _signature_of(found: os.stat_result) -> _Signature:
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)


def _signature(path: str) -> _Signature | None:
    """Differs between any two versions of a node, as long as a descriptor of one of them is open."""
    try:
        return _signature_of(os.stat(path))
    except FileNotFoundError:
        return None


def _is_live(fd: int) -> bool:
    """Whether an open node counts: it is no ephemeral one, or its owner holds its lock."""
    if not os.fstat(fd).st_mode & _EPHEMERAL:
        return True
    try:
        # Shared: two who ask at once must not take each other for the owner.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _open_live(path: str) -> int:
    """A descriptor of the node's newest version, or -1 if there is none or its owner is gone."""
    for _ in range(_READ_RETRIES):
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return -1
        if _is_live(fd):
            return fd
        # Left over, or replaced by its owner since it was opened, who then let the old version's lock go.
        found = _signature(path)
        same = found is not None and found[:2] == _signature_of(os.fstat(fd))[:2]
        os.close(fd)
        if same:
            return -1
    raise StateError(f"{path} is replaced faster than it can be read")


def _is_live_ephemeral(path: str) -> bool:
    fd = _open_live(path)
    if fd < 0:
        return False
    try:
        return bool(os.fstat(fd).st_mode & _EPHEMERAL)
    finally:
        os.close(fd)


def _read(fd: int) -> bytes:
    parts = []
    offset = 0
    while part := os.pread(fd, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


@contextlib.contextmanager
def _temp(path: str, value: bytes) -> Iterator[str]:
    """A synced file with `value` beside `path`. Removed at the end unless it was renamed."""
    temp = os.path.join(os.path.dirname(path), f".{os.getpid()}-{uuid.uuid4().hex}{_TEMP_SUFFIX}")
    try:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(fd, "wb") as f:
            f.write(value)
            f.flush()
            os.fsync(fd)
        yield temp
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)


def _sync_directory(path: str) -> None:
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sweep_temps(directory: str) -> None:
    """Remove what writers left that were killed in the middle of a write."""
    for entry in os.scandir(directory):
        if entry.name.startswith(".") and entry.name.endswith(_TEMP_SUFFIX):
            with contextlib.suppress(OSError):  # somebody else's, or removed by somebody else
                if time.time() - entry.stat().st_mtime > _TEMP_AGE_S:
                    os.unlink(entry.path)
