"""The session with ZooKeeper beneath the state manager: bounded calls, and what outlives connections and sessions.

Ephemeral nodes and watches are made again by one thread, the keeper; see `zookeeper` for the whole.
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
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionClosedRequireSaslError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from heronpy.errors import StateError
from heronpy.statemgr._access import CREDENTIALS_KEY, Credentials
from heronpy.statemgr._base import Kind, StateManager, check_node
from heronpy.statemgr._watch import Watch
from heronpy.statemgr._zookeeper_attempt import UNCERTAIN, Attempt
from heronpy.statemgr._zookeeper_client import make_client, parse_connection, refusal

log = logging.getLogger(__name__)

DEFAULT_ROOT = "/heron"

_RETRY_S = 0.05
_KEEPER_RETRY_S = 0.2
_KEEPER_CHECK_S = 1.0
_CLOSE_S = 5.0

T = TypeVar("T")


@dataclass(slots=True)
class Owned:
    """An ephemeral node of ours, and the session it was made in."""

    value: bytes
    session: int


@dataclass(slots=True)
class Armed:
    """A watch, and whether it has to read again."""

    watch: Watch
    path: str
    fired: Callable[[Any], None]
    dirty: bool = True


class ZookeeperSession(StateManager):
    """A state manager's session with the servers."""

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
        self._owned: dict[str, Owned] = {}
        self._abandoned: set[str] = set()  # paths where this session may have an unwanted node
        self._armed: dict[Watch, Armed] = {}
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

    def _call(self, what: str, operation: Callable[[Attempt], T]) -> T:
        """Run an operation until it is answered or the time is up.

        Raises:
            StateError: ZooKeeper did not answer in time, or refused.
        """
        self._check_usable()
        attempt = Attempt(self._client, time.monotonic() + self._call_timeout_s)
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
            except UNCERTAIN:
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

    def _make_tree(self, attempt: Attempt) -> None:
        if self._chroot and attempt.wait(attempt.client.exists_async(self._chroot)) is None:
            raise StateError(
                f"ZooKeeper at {self._hosts} has no {self._chroot}: create it, or take it out of the connection string"
            )
        for kind in Kind:
            attempt.wait(attempt.client.ensure_path_async(f"{self._root}/{kind.value}"))
        # Also for a folder that exists, so that a stranger gets the error now and not in the middle of something.
        acl, _ = attempt.wait(attempt.client.get_acls_async(f"{self._root}/{Kind.TOPOLOGIES.value}"))
        if self._credentials is not None and any(one.id.scheme == "world" for one in acl):
            log.warning("%s in ZooKeeper at %s was made without a user: it stays open to all", self._root, self._hosts)

    # What is owned

    def _own(self, path: str, value: bytes) -> None:
        with self._tables:
            if path in self._owned:
                self._owned[path].value = value

    def _abandon(self, path: str) -> None:
        with self._tables:
            self._abandoned.add(path)
        self._wake.set()

    # Watching

    def watch(self, kind: Kind, topology: str, callback: Callable[[bytes | None], None]) -> Watch:
        path = self._path(kind, topology)
        watch = Watch(f"{kind.value}/{topology}", callback, self._wake.set)

        def fired(_event: Any) -> None:
            armed.dirty = True
            self._wake.set()

        armed = Armed(watch, path, fired)
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
                # Whatever it is (no thread for a new client, say): without this thread no watch is notified and
                # no node is made again, and nothing would notice its end.
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

    def _remake_owned(self, path: str, owned: Owned, session: int) -> None:
        if path.startswith(f"{self._root}/{Kind.LOCKS.value}/"):
            # Somebody may have held it meanwhile; a lock is never taken twice in silence.
            log.error("%s: the lock was lost with the session", path)
            with self._tables:
                self._owned.pop(path, None)
            return

        def make(attempt: Attempt) -> bool:
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
        def remove(attempt: Attempt) -> None:
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

    def _look_again(self, armed: Armed) -> None:
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
    def _look(attempt: Attempt, armed: Armed) -> bytes | None:
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
