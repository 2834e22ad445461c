"""The state manager in ZooKeeper, through kazoo.

kazoo keeps the connection; this file adds what it leaves to its users:

- Time: kazoo's calls wait for ever while the server is away, and its reconnect pauses grow until the session is lost.
  Here every call has a deadline, attempts come at a steady pace, and no single server may use up the session's time.
- Answers that were lost with the connection: the call is repeated, and each operation knows how to tell that its first
  attempt went through.
- A server refuses a client that has seen newer data than it has: for good, if it came back without its data. After a
  session's time without a connection the client forgets what it has seen.
- A follower may lag behind, and a leader that hung may not know yet that there is another: it answers reads, also after
  a sync, with what has been overwritten. So a read of a value is preceded by a transaction that changes nothing, which
  a quorum has to agree to. It costs what a write costs. Names of a folder are read after a sync alone.
- Ephemeral nodes and watches end with the session (watches already with the connection). One thread, the *keeper*,
  makes them again. kazoo's own threads only mark what changed and wake it, so nothing of ours can hold them up.

With a user (scheme `digest`) every node that is made here carries an ACL for that user alone. Without one, who can
reach the servers can read and write the tree (world ACL), as with Heron: keep them in a network you trust. Nodes that
exist keep their ACL: a root that was made without a user stays open, and says so.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from heronpy.errors import AlreadyExistsError, StateError
from heronpy.statemgr._access import CREDENTIALS_KEY, Credentials
from heronpy.statemgr._base import Kind, StateManager, check_condition, check_node
from heronpy.statemgr._watch import Watch
from heronpy.statemgr._zookeeper_client import RECONNECT, make_client, parse_connection, refusal

log = logging.getLogger(__name__)

__all__ = ["DEFAULT_ROOT", "RECONNECT", "VALUE_BYTES_MAX", "ZookeeperStateManager"]

VALUE_BYTES_MAX = 1_000_000
"""A server closes the connection on a packet above 1 MiB (jute.maxbuffer), path and header included."""
DEFAULT_ROOT = "/heron"

_RETRY_S = 0.05
_KEEPER_RETRY_S = 0.2
_KEEPER_CHECK_S = 1.0
_CLOSE_S = 5.0

# The connection or the session went away under the call: it may or may not have been done.
_UNCERTAIN = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, OperationTimeoutError)

T = TypeVar("T")


@dataclass(slots=True)
class _Owned:
    """An ephemeral node of ours, and the session it was made in."""

    value: bytes
    session: int


@dataclass(slots=True)
class _Armed:
    """A watch, and whether it has to look again."""

    watch: Watch
    path: str
    fired: Callable[[Any], None]
    dirty: bool = True


class ZookeeperStateManager(StateManager):
    """State in ZooKeeper below `root`."""

    def __init__(
        self,
        connection: str,
        root: str = DEFAULT_ROOT,
        *,
        session_timeout_s: float = 10.0,
        call_timeout_s: float = 10.0,
        credentials: Credentials | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Connect, and make the tree where it is missing.

        Args:
            connection: host:port[,host:port…]; a path after it (chroot) must exist, and is put before `root`.
            root: The znode that holds the tree.
            session_timeout_s: How long the servers keep the ephemeral nodes of a silent process.
            call_timeout_s: Longest time of any call.
            credentials: The user to whom alone the nodes shall belong; None: they belong to everybody.
            tls: Makes what TLS is spoken with; None: none is.

        Raises:
            ConfigError: the connection string cannot be read.
            StateError: no server answers, it refuses, or there is no such chroot.
        """
        super().__init__()
        self._hosts, chroot = parse_connection(connection)
        self._chroot = "/" + chroot.strip("/") if chroot.strip("/") else ""
        self._root = "/" + "/".join(part for part in f"{chroot}/{root or DEFAULT_ROOT}".split("/") if part)
        self._credentials, self._tls = credentials, tls
        self._session_timeout_s = session_timeout_s
        self._call_timeout_s = call_timeout_s
        # Guards the three tables below; never held during a call to the servers.
        self._tables = threading.Lock()
        self._owned: dict[str, _Owned] = {}
        self._abandoned: set[str] = set()  # paths where this session may have a node that nobody wants
        self._armed: dict[Watch, _Armed] = {}
        # One change of an own ephemeral node at a time: the keeper must not make again what is being deleted.
        self._owning = threading.RLock()
        self._wake = threading.Event()
        self._connected_s = time.monotonic()
        self._client = self._connect()
        self._keeper = threading.Thread(target=self._keep, name="statemgr-zookeeper", daemon=True)
        try:
            self._call("make the tree", self._make_tree)
        except BaseException:
            self._closed = True
            self._stop(self._client)
            raise
        self._keeper.start()

    # Connection

    def _connect(self) -> KazooClient:
        client = make_client(
            self._hosts,
            session_timeout_s=self._session_timeout_s,
            credentials=self._credentials,
            tls=None if self._tls is None else self._tls(),
        )
        client.add_listener(self._state_changed)
        client.start_async()
        return client

    def _state_changed(self, state: str) -> None:
        """Called by kazoo's connection thread: note it and return."""
        if state == KazooState.CONNECTED:
            log.info("connected to ZooKeeper at %s", self._hosts)
            self._mark_all()
        elif not self._closed:
            lost = "session" if state == KazooState.LOST else "connection"
            log.warning("the %s with ZooKeeper at %s is lost: connecting again", lost, self._hosts)
            self._wake.set()

    def _mark_all(self) -> None:
        with self._tables:
            for armed in self._armed.values():
                armed.dirty = True
        self._wake.set()

    def _session(self) -> int:
        """Id of the session, or 0 while there is none."""
        client_id = self._client.client_id
        return (client_id[0] or 0) if client_id else 0

    def _stop(self, client: KazooClient) -> None:
        """End a client's session. Takes a bounded time, whatever the server does."""

        def stop() -> None:
            # The connection may break in any way while it is being closed; there is nothing left to save.
            with contextlib.suppress(Exception):
                client.stop()
                client.close()

        thread = threading.Thread(target=stop, name="statemgr-zookeeper-close", daemon=True)
        thread.start()
        thread.join(_CLOSE_S)

    def _call(self, what: str, operation: Callable[[_Attempt], T]) -> T:
        """Run an operation until it is answered or the time is up.

        Raises:
            StateError: ZooKeeper did not answer in time, or refused.
        """
        self._check_usable()
        attempt = _Attempt(self, time.monotonic() + self._call_timeout_s)
        while attempt.left_s() > 0:
            self._check_usable()
            if not self._client.connected:
                if reason := refusal(self._client):
                    raise StateError(f"cannot {what} in ZooKeeper at {self._hosts}: {reason}")
                time.sleep(min(_RETRY_S, attempt.left_s() + 0.001))
                continue
            attempt.client = self._client
            try:
                return operation(attempt)
            except _UNCERTAIN:
                attempt.repeated = True
                time.sleep(_RETRY_S)
            except KazooTimeoutError:
                attempt.repeated = True
            except (NoAuthError, SessionClosedRequireSaslError) as e:
                raise StateError(f"ZooKeeper at {self._hosts} refuses to {what}: {self._no_permission()}") from e
            except KazooException as e:
                raise StateError(f"ZooKeeper at {self._hosts} refuses to {what}: {type(e).__name__} {e}") from e
        raise StateError(
            f"ZooKeeper at {self._hosts} does not answer (waited {self._call_timeout_s:g} s): "
            f"cannot {what}; is it running?"
        )

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Change the ephemeral nodes of this session, one thread at a time."""
        if not self._owning.acquire(timeout=self._call_timeout_s):
            raise StateError(f"ZooKeeper at {self._hosts} does not answer: another call is still waiting for it")
        try:
            yield
        finally:
            self._owning.release()

    def _no_permission(self) -> str:
        if self._credentials is None:
            return f"no permission: its nodes belong to a user, name one by {CREDENTIALS_KEY}"
        return f"no permission: they belong to another user than {self._credentials.user!r}, or its password is wrong"

    def _make_tree(self, attempt: _Attempt) -> None:
        if self._chroot and attempt.wait(attempt.client.exists_async(self._chroot)) is None:
            raise StateError(
                f"ZooKeeper at {self._hosts} has no {self._chroot}: create it, or take it out of the connection string"
            )
        for kind in Kind:
            attempt.wait(attempt.client.ensure_path_async(f"{self._root}/{kind.value}"))
        # Also for a folder that exists, so that a stranger is told now and not in the middle of something.
        acl, _ = attempt.wait(attempt.client.get_acls_async(f"{self._root}/{Kind.TOPOLOGIES.value}"))
        if self._credentials is not None and any(one.id.scheme == "world" for one in acl):
            log.warning("%s in ZooKeeper at %s was made without a user: it stays open to all", self._root, self._hosts)

    # Reading

    def get(self, kind: Kind, topology: str) -> bytes | None:
        path = self._path(kind, topology)

        def read(attempt: _Attempt) -> bytes | None:
            try:
                value: bytes = attempt.read_newest(path)[0]
            except NoNodeError:
                return None
            return value

        return self._call(f"read {path}", read)

    def list(self, kind: Kind) -> list[str]:
        path = f"{self._root}/{kind.value}"

        def read(attempt: _Attempt) -> list[str]:
            try:
                return sorted(attempt.read_names(path))
            except NoNodeError:
                return []

        return self._call(f"list {path}", read)

    # Changing

    def set(self, kind: Kind, topology: str, value: bytes) -> None:
        path = self._path(kind, topology)
        _check_size(path, value)
        with self._turn() if path in self._owned else contextlib.nullcontext():
            ephemeral = path in self._owned
            self._call(f"write {path}", lambda attempt: self._replace(attempt, path, value, ephemeral=ephemeral))
            if ephemeral:
                self._own(path, value)

    def _replace(self, attempt: _Attempt, path: str, value: bytes, *, ephemeral: bool) -> None:
        # Doing it twice does no harm, so lost answers need no care.
        while attempt.left_s() > 0:
            found = attempt.wait(attempt.client.exists_async(path))
            try:
                if found is None:
                    attempt.wait(attempt.client.create_async(path, value, ephemeral=ephemeral, makepath=True))
                    return
                if found.ephemeralOwner not in (0, self._session()):
                    if not ephemeral:
                        raise AlreadyExistsError(
                            f"{path} belongs to another live process: only its owner may change it"
                        )
                    raise AlreadyExistsError(f"{path} belongs to another process now: the session was lost")
                attempt.wait(attempt.client.set_async(path, value, version=found.version))
                return
            except (NoNodeError, NodeExistsError, BadVersionError):
                continue  # somebody else came between: look again
        raise KazooTimeoutError

    def set_if(
        self, kind: Kind, topology: str, value: bytes, *, expected: bytes | None, of: Kind | None = None
    ) -> bool:
        check_condition(kind, expected, of)
        path, compared = self._path(kind, topology), self._path(of or kind, topology)
        _check_size(path, value)
        with self._turn() if path in self._owned else contextlib.nullcontext():
            if path == compared:
                done = self._call(
                    f"write {path}", lambda attempt: self._compare_and_set(attempt, path, expected, value)
                )
            else:
                assert expected is not None  # else `check_condition` has refused
                done = self._call(
                    f"write {path}", lambda attempt: self._fenced_set(attempt, path, value, compared, expected)
                )
            if done:
                self._own(path, value)
        return done

    def _compare_and_set(self, attempt: _Attempt, path: str, expected: bytes | None, value: bytes) -> bool:
        while attempt.left_s() > 0:
            found = self._read_version(attempt, path)
            if attempt.repeated and found is not None and found[0] == value:
                return True  # by our own earlier attempt, whose answer was lost: values are unique
            if (None if found is None else found[0]) != expected:
                return False
            try:
                if found is None:
                    attempt.wait(attempt.client.create_async(path, value, makepath=True))
                else:
                    self._check_owner(path, found[1])
                    attempt.wait(attempt.client.set_async(path, value, version=found[1].version))
            except (NoNodeError, NodeExistsError, BadVersionError):
                continue  # somebody else came between: look again
            return True
        raise KazooTimeoutError

    def _fenced_set(self, attempt: _Attempt, path: str, value: bytes, compared: str, expected: bytes) -> bool:
        # Doing it twice does no harm: who is still named in the fence is the only writer.
        while attempt.left_s() > 0:
            fence, found = self._read_version(attempt, compared), self._read_version(attempt, path)
            if fence is None or fence[0] != expected:
                return False
            write = attempt.client.transaction()
            write.check(compared, fence[1].version)
            if found is None:
                attempt.wait(attempt.client.ensure_path_async(path.rpartition("/")[0]))
                write.create(path, value)
            else:
                self._check_owner(path, found[1])
                write.set_data(path, value, version=found[1].version)
            results = attempt.wait(write.commit_async())
            for result in results:
                if isinstance(result, NoAuthError):
                    raise result
            if not any(isinstance(result, Exception) for result in results):
                return True  # else somebody else came between: look again
        raise KazooTimeoutError

    def _read_version(self, attempt: _Attempt, path: str) -> tuple[bytes, Any] | None:
        """Value and stat, or None if there is no such node."""
        try:
            value, stat = attempt.read_newest(path)
        except NoNodeError:
            return None
        return value, stat

    def _check_owner(self, path: str, stat: Any) -> None:
        if stat.ephemeralOwner not in (0, self._session()):
            raise AlreadyExistsError(f"{path} belongs to another live process: only its owner may change it")

    def create(self, kind: Kind, topology: str, value: bytes, *, ephemeral: bool = False) -> None:
        path = self._path(kind, topology)
        _check_size(path, value)
        if not ephemeral:
            self._call(f"create {path}", lambda attempt: self._make(attempt, path, value, ephemeral=False))
            return
        with self._turn():
            self._remove_abandoned(path)
            try:
                session = self._call(f"create {path}", lambda attempt: self._make(attempt, path, value, ephemeral=True))
            except StateError:
                # It may have been made, or be made still: the caller will not look after it.
                self._abandon(path)
                raise
            with self._tables:
                self._owned[path] = _Owned(value, session)
            if session != self._session():
                self._wake.set()

    def _abandon(self, path: str) -> None:
        with self._tables:
            self._abandoned.add(path)
        self._wake.set()

    def _make(self, attempt: _Attempt, path: str, value: bytes, *, ephemeral: bool) -> int:
        """Create a node once. Returns the session in which it was made, or an older one."""
        session = self._session()
        try:
            attempt.wait(attempt.client.create_async(path, value, ephemeral=ephemeral, makepath=True))
        except NodeExistsError:
            # After a lost answer the node may be our own. Values carry ids (of the topology, the process, the lock), so
            # the same value means the same maker.
            if not (attempt.repeated and self._is_ours(attempt, path, value, ephemeral=ephemeral)):
                raise AlreadyExistsError(f"{path} exists already") from None
        return session

    def _is_ours(self, attempt: _Attempt, path: str, value: bytes, *, ephemeral: bool) -> bool:
        try:
            found, stat = attempt.wait(attempt.client.get_async(path))
        except NoNodeError:
            return False
        owner = self._session() if ephemeral else 0
        return bool(found == value and stat.ephemeralOwner == owner)

    def _own(self, path: str, value: bytes) -> None:
        with self._tables:
            if path in self._owned:
                self._owned[path].value = value

    def delete(self, kind: Kind, topology: str) -> bool:
        path = self._path(kind, topology)

        def remove(attempt: _Attempt) -> bool:
            try:
                attempt.wait(attempt.client.delete_async(path))
            except NoNodeError:
                return attempt.repeated  # an earlier attempt, whose answer was lost, may have found it
            return True

        with self._turn() if path in self._owned else contextlib.nullcontext():
            with self._tables:
                self._owned.pop(path, None)
            return self._call(f"delete {path}", remove)

    def _delete_own(self, kind: Kind, name: str, value: bytes) -> bool:
        path = self._path(kind, name)
        with self._turn():
            with self._tables:
                self._owned.pop(path, None)
            try:
                return self._remove_own(path, value)
            except StateError:
                self._abandon(path)
                raise

    def _remove_own(self, path: str, value: bytes) -> bool:
        first = self._session()

        def remove(attempt: _Attempt) -> bool:
            session = self._session()
            if not self._is_ours(attempt, path, value, ephemeral=True):
                # Gone within one session: by our own earlier attempt, whose answer was lost.
                return attempt.repeated and session == first and self._gone(attempt, path)
            if session != self._session():
                raise SessionExpiredError  # what we saw was seen in another session: look again
            with contextlib.suppress(NoNodeError):
                attempt.wait(attempt.client.delete_async(path))
            return True

        return self._call(f"delete {path}", remove)

    def _gone(self, attempt: _Attempt, path: str) -> bool:
        return attempt.wait(attempt.client.exists_async(path)) is None

    # Watching

    def watch(self, kind: Kind, topology: str, callback: Callable[[bytes | None], None]) -> Watch:
        path = self._path(kind, topology)
        watch = Watch(f"{kind.value}/{topology}", callback, self._wake.set)

        def fired(_event: Any) -> None:
            armed.dirty = True
            self._wake.set()

        armed = _Armed(watch, path, fired)
        with self._tables:
            self._armed[watch] = armed
        self._wake.set()
        return watch

    # The keeper

    def _keep(self) -> None:
        """What makes ephemeral nodes and watches outlive connections and sessions. One thread."""
        pause_s = _KEEPER_CHECK_S
        while not self._closed:
            self._wake.wait(pause_s)
            self._wake.clear()
            if self._closed:
                return
            pause_s = _KEEPER_CHECK_S
            try:
                self._keep_client()
                self._accept_older_data()
                if self._client.connected and not self._keep_all():
                    pause_s = _KEEPER_RETRY_S
            except Exception:
                # Whatever it is (no thread for a new client, say): without this thread no watch is told anything and
                # no node is made again, and nobody would notice its end.
                if not self._closed:
                    log.exception("will try again to look after nodes and watches in ZooKeeper")

    def _keep_all(self) -> bool:
        """Look after everything that is due. One that fails does not keep the others waiting for the next round."""
        session = self._session()
        with self._tables:
            for watch in [w for w in self._armed if w.cancelled]:
                del self._armed[watch]
            due: list[Callable[[], None]] = [
                *(partial(self._remake, p, session) for p, owned in self._owned.items() if owned.session != session),
                *(partial(self._remove_abandoned, p) for p in self._abandoned),
                *(partial(self._look_again, armed) for armed in self._armed.values() if armed.dirty),
            ]
        done = True
        for step in due:
            try:
                step()
            except StateError as e:
                done = False
                if not self._closed:
                    log.info("%s: will try again", e)
            if not self._client.connected or self._closed:
                return False
        return done

    def _keep_client(self) -> None:
        """kazoo gives up for good when something unforeseen happens in its thread: start over with a new client."""
        routine = self._client._connection._connection_routine
        if routine is not None and routine.is_alive():
            return
        log.warning("the ZooKeeper client has stopped: starting another")
        self._stop(self._client)
        self._client = self._connect()

    def _accept_older_data(self) -> None:
        now_s = time.monotonic()
        if self._client.connected:
            self._connected_s = now_s
        elif now_s - self._connected_s > self._session_timeout_s:
            self._client.last_zxid = 0

    def _remake(self, path: str, session: int) -> None:
        with self._turn():
            with self._tables:
                owned = self._owned.get(path)
            if owned is not None and owned.session != session and session == self._session():
                self._remake_owned(path, owned, session)

    def _remake_owned(self, path: str, owned: _Owned, session: int) -> None:
        if path.startswith(f"{self._root}/{Kind.LOCKS.value}/"):
            # Somebody may have held it meanwhile; a lock is never taken twice in silence.
            log.error("%s: the lock was lost with the session", path)
            with self._tables:
                self._owned.pop(path, None)
            return

        def make(attempt: _Attempt) -> bool:
            if self._session() not in (0, session):
                raise StateError(f"the session was lost again before {path} was made")  # the keeper starts over
            try:
                attempt.wait(attempt.client.create_async(path, owned.value, ephemeral=True, makepath=True))
            except NodeExistsError:
                found = attempt.wait(attempt.client.exists_async(path))
                if found is None:
                    raise OperationTimeoutError from None  # gone in this moment: again
                if found.ephemeralOwner == owned.session != 0:
                    # Our own previous session, which its client gave up and the servers have not yet ended.
                    with contextlib.suppress(NoNodeError, BadVersionError):
                        attempt.wait(attempt.client.delete_async(path, version=found.version))
                    raise OperationTimeoutError from None
                return bool(found.ephemeralOwner == session)
            return True

        if self._call(f"make {path} again", make):
            log.info("%s is made again in a new session", path)
            owned.session = session
        else:
            log.error("%s was taken by somebody else after the session was lost", path)
            with self._tables:
                self._owned.pop(path, None)

    def _remove_abandoned(self, path: str) -> None:
        def remove(attempt: _Attempt) -> None:
            # Requests of one connection are done in order, so one that was given up is done before this look, or never.
            found = attempt.wait(attempt.client.exists_async(path))
            if found is not None and found.ephemeralOwner == self._session() != 0:
                with contextlib.suppress(NoNodeError, BadVersionError):
                    attempt.wait(attempt.client.delete_async(path, version=found.version))

        with self._turn():
            if path in self._abandoned and path not in self._owned:
                self._call(f"delete {path}", remove)
            with self._tables:
                self._abandoned.discard(path)

    def _look_again(self, armed: _Armed) -> None:
        # Before the look, not after it: what fires during the look must be looked at again.
        armed.dirty = False
        try:
            value = self._call(f"watch {armed.path}", lambda attempt: self._look(attempt, armed))
        except StateError:
            armed.dirty = True
            raise
        if not self._closed:
            armed.watch.deliver(value)

    @staticmethod
    def _look(attempt: _Attempt, armed: _Armed) -> bytes | None:
        """Read a node and arm its watch in one request, so that no change falls between the two."""
        while attempt.left_s() > 0:
            try:
                value: bytes = attempt.wait(attempt.client.get_async(armed.path, watch=armed.fired))[0]
            except NoNodeError:
                if attempt.wait(attempt.client.exists_async(armed.path, watch=armed.fired)) is None:
                    return None
            else:
                return value
        raise KazooTimeoutError

    # Ending, and shared parts

    def _close(self) -> None:
        self._wake.set()
        client = self._client
        self._stop(client)
        if self._keeper is not threading.current_thread():
            self._keeper.join(_CLOSE_S)
        if self._client is not client:  # replaced by the keeper in this moment
            self._stop(self._client)

    def _path(self, kind: Kind, name: str) -> str:
        self._check_usable()
        return f"{self._root}/{kind.value}/{check_node(kind, name)}"


class _Attempt:
    """One call on its way: which client it uses, and how long it may take."""

    def __init__(self, manager: ZookeeperStateManager, deadline_s: float) -> None:
        self.client: KazooClient = manager._client
        self.repeated = False
        """An earlier attempt got no answer: it may have been done."""
        self._deadline_s = deadline_s

    def left_s(self) -> float:
        return self._deadline_s - time.monotonic()

    def read_newest(self, path: str) -> Any:
        """Value and stat of a node, not older than any value that anybody knew when the call began.

        Requests of a session are done in order, so the read sees what the transaction before it sees. The transaction
        may be lost with its connection while the read goes over the next one: an answer counts only if both were
        answered. What the transaction finds does not matter.
        """
        nothing = self.client.transaction()
        nothing.check(path, -1)
        agreed, result = nothing.commit_async(), self.client.get_async(path)
        self.wait(agreed)
        return self.wait(result)

    def read_names(self, path: str) -> Any:
        """The children of a node, as the leader knows them: see `read_newest` for what is lost."""
        synced, result = self.client.sync_async(path), self.client.get_children_async(path)
        self.wait(synced)
        return self.wait(result)

    def wait(self, result: Any) -> Any:
        """The answer to an asynchronous request, or KazooTimeoutError when the call's time is up."""
        return result.get(timeout=max(0.001, self.left_s()))


def _check_size(path: str, value: bytes) -> None:
    if len(value) > VALUE_BYTES_MAX:
        raise StateError(f"{path}: {len(value)} bytes are too many for ZooKeeper, which takes {VALUE_BYTES_MAX}")
