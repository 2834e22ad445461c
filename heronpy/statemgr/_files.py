"""The state manager in files: nothing to install, and safe between processes.

How it keeps its promises:

- A node is a file that is never edited: every version is a new inode, written aside, synced and renamed over the name.
  So a reader sees one version whole, and an open descriptor pins a version's identity (its inode number cannot be used
  again), which is how a watch distinguishes versions without trusting the clock.
- An ephemeral node has its owner's execute bit set, and its owner holds an flock on the inode. The kernel lets it go
  when the last descriptor is closed, however the process ends. Who reads an ephemeral file and gets the lock knows that
  it is left over. The lock is taken before the file gets its name: no one ever sees a live node unlocked. Descriptors
  are close-on-exec, and forked children close them: a child must not keep its parent's nodes alive.
- The folders are 0700 and the files 0600: who can open a file can lock it, and could stop every change or keep a dead
  owner's node alive. What belongs to somebody else is not believed (see `_node_file`).
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
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from heronpy.errors import AlreadyExistsError, ConfigError, StateError
from heronpy.files import lock_within, make_private, sync, user_path
from heronpy.statemgr._base import Kind, StateManager, check_condition, check_node
from heronpy.statemgr._file_watches import FileWatches
from heronpy.statemgr._node_file import (
    EPHEMERAL,
    FILE_MODE,
    is_live_ephemeral,
    make_directory,
    open_live,
    open_owned,
    read,
    signature,
    signature_of,
    sweep_temps,
    temp_file,
    trusted_owners,
)
from heronpy.statemgr._watch import Watch

log = logging.getLogger(__name__)

_MUTEX = ".mutex"

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


class FileStateManager(StateManager):
    """State in files below `root`, shared by all processes that see the directory."""

    def __init__(
        self, root: str | Path, *, call_timeout_s: float = 10.0, poll_interval_s: float = 0.1, parents: bool = True
    ) -> None:
        """Open the tree, made where it is missing.

        Args:
            root: The directory. `~` is the user's home.
            call_timeout_s: How long a change waits for other processes' changes.
            poll_interval_s: How often watched files are looked at. Costs one stat a watch.
            parents: Make what the root is in, too.

        Raises:
            ConfigError: no root is given.
            StateError: the root cannot be made or read, or belongs to somebody else.
        """
        super().__init__()
        if not str(root):
            raise ConfigError("the file state manager needs a root path (heron.statemgr.root.path)")
        self._root = os.path.abspath(user_path(root))
        self._call_timeout_s = call_timeout_s
        self._owned: dict[str, int] = {}  # path of an ephemeral node of ours -> its locked descriptor
        self._foreign: set[str] = set()
        with self._errors("open"):
            if parents:
                make_private(Path(self._root).parent, exist_ok=True)
            self._make_root()
            self._trusted = trusted_owners(self._root)
            self._make_tree()
            for kind in Kind:
                sweep_temps(os.path.join(self._root, kind.value))
        self._watches = FileWatches(self._trusted, poll_interval_s)
        _managers.add(self)

    # Reading

    def get(self, kind: Kind, topology: str) -> bytes | None:
        path = self._path(kind, topology)
        with self._errors(f"read {kind.value}/{topology}"):
            return self._value(path)

    def _value(self, path: str) -> bytes | None:
        fd = open_live(path, self._trusted)
        if fd < 0:
            return None
        try:
            return read(fd)
        finally:
            os.close(fd)

    def list(self, kind: Kind) -> list[str]:
        self._check_usable()
        directory = os.path.join(self._root, kind.value)
        with self._errors(f"list {kind.value}"):
            try:
                names = os.listdir(directory)
            except FileNotFoundError:
                return []  # emptied: the next writer makes it again
            return sorted(n for n in names if not n.startswith(".") and self._exists(os.path.join(directory, n)))

    def _exists(self, path: str) -> bool:
        try:
            fd = open_live(path, self._trusted)
        except StateError as e:
            if path not in self._foreign:
                log.warning("%s", e)
            self._foreign.add(path)
            return False
        if fd >= 0:
            os.close(fd)
        return fd >= 0

    # Changing

    def set(self, kind: Kind, topology: str, value: bytes) -> None:
        path = self._path(kind, topology)
        with self._errors(f"write {kind.value}/{topology}"), self._new_file(path, value) as new:
            with self._mutex():
                self._replace(new, path)
            sync(os.path.dirname(path))

    def set_if(
        self, kind: Kind, topology: str, value: bytes, *, expected: bytes | None, of: Kind | None = None
    ) -> bool:
        check_condition(kind, expected, of)
        path, compared = self._path(kind, topology), self._path(of or kind, topology)
        with self._errors(f"write {kind.value}/{topology}"), self._new_file(path, value) as new:
            with self._mutex():
                if self._value(compared) != expected:
                    return False
                self._replace(new, path)
            sync(os.path.dirname(path))
        return True

    def _replace(self, new: str, path: str) -> None:
        """Give a written file the name of a node that may exist. The caller holds the mutex."""
        own = path in self._owned
        if not own and is_live_ephemeral(path, self._trusted):
            raise AlreadyExistsError(f"{path} belongs to another live process: only its owner may change it")
        self._publish(new, path, ephemeral=own)

    @contextlib.contextmanager
    def _new_file(self, path: str, value: bytes) -> Iterator[str]:
        if not os.path.isdir(os.path.dirname(path)):
            self._make_tree()  # somebody has emptied the root
        with temp_file(path, value) as new:
            yield new

    def _make_root(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._root, 0o700)

    def _make_tree(self) -> None:
        """Make the root and its folders where they are missing; but never what the root is in: that was removed."""
        self._make_root()
        if os.geteuid() == 0 != os.stat(self._root).st_uid:
            return  # somebody else's tree, read by root: what root makes here its owner could not enter
        for kind in Kind:
            make_directory(os.path.join(self._root, kind.value), self._trusted)

    def create(self, kind: Kind, topology: str, value: bytes, *, ephemeral: bool = False) -> None:
        path = self._path(kind, topology)
        with self._errors(f"create {kind.value}/{topology}"), self._new_file(path, value) as new:
            with self._mutex():
                fd = open_live(path, self._trusted)
                if fd >= 0:
                    os.close(fd)
                    raise AlreadyExistsError(f"{kind.value}/{topology} exists already")
                self._publish(new, path, ephemeral=ephemeral)
            sync(os.path.dirname(path))

    def delete(self, kind: Kind, topology: str) -> bool:
        path = self._path(kind, topology)
        if not os.path.isdir(os.path.dirname(path)):
            self._disown(path)
            return False
        with self._errors(f"delete {kind.value}/{topology}"):
            with self._mutex():
                fd = open_live(path, self._trusted)
                if fd >= 0:
                    os.close(fd)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                self._disown(path)
            sync(os.path.dirname(path))
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
        self._check_usable()  # again: `close` may have come between, and nothing would end this node
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
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | EPHEMERAL)
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
        found = signature(path)
        return fd >= 0 and found is not None and found[:2] == signature_of(os.fstat(fd))[:2]

    def _forget_owned(self) -> None:
        """In a forked child: the parent's nodes are the parent's alone."""
        while self._owned:
            os.close(self._owned.popitem()[1])

    # Watching

    def watch(self, kind: Kind, topology: str, callback: Callable[[bytes | None], None]) -> Watch:
        path = self._path(kind, topology)
        return self._watches.add(f"{kind.value}/{topology}", path, callback)

    # Ending, and shared parts

    def _close(self) -> None:
        self._watches.close()
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
        fd = open_owned(os.path.join(self._root, _MUTEX), os.O_RDWR | os.O_CREAT, self._trusted)
        try:
            if stat.S_IMODE(os.fstat(fd).st_mode) & 0o077 and os.fstat(fd).st_uid == os.geteuid():
                os.fchmod(fd, FILE_MODE)  # a user who can open it can lock it
            if not lock_within(fd, self._call_timeout_s):
                raise StateError(
                    f"another process has held {self._root}/{_MUTEX} for {self._call_timeout_s:g} s: "
                    "is one of them stopped?"
                )
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
