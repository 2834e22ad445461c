"""The state manager in etcd: nodes are keys, conditions are transactions, ephemeral nodes hang on a lease."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heronpy.errors import AlreadyExistsError, ConfigError, StateError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr._access import CA_KEY, CERTIFICATE_KEY, read_credentials, tls_context
from heronpy.statemgr._base import Kind, StateManager, check_condition, check_node
from heronpy.statemgr._watch import Watch
from heronpy.statemgr.etcd._gateway import Gateway, NoAnswerError, NotSentError, RefusedError, parse_endpoints
from heronpy.statemgr.etcd._requests import (
    Found,
    Json,
    delete,
    exists,
    folder_of,
    lease_is,
    put,
    range_of,
    revision_is,
    value_is,
)
from heronpy.statemgr.etcd._session import Session, Sessions, Written
from heronpy.statemgr.etcd._watches import EtcdWatches

log = logging.getLogger(__name__)

VALUE_BYTES_MAX = 1_000_000
"""A server takes requests of 1.5 MiB (--max-request-bytes)."""
DEFAULT_ROOT = "/heron"
_LIST_MAX = 5_000
_RETRY_S = 0.2
_CLOSE_S = 5.0


@dataclass(slots=True)
class _Owned:
    """An ephemeral node of ours, and the lease that it hangs on."""

    value: bytes
    lease: int


class EtcdStateManager(StateManager):
    """State in etcd below the prefix `root`."""

    def __init__(self, spec: StatemgrSpec, *, session_timeout_s: float = 10.0, call_timeout_s: float = 10.0) -> None:
        """Connect.

        Args:
            spec: `connection`: [https://]host:port[,host:port…] of the members, in any order.
            session_timeout_s: How long etcd keeps the ephemeral nodes of a silent process; at least some two seconds.
            call_timeout_s: Longest time of any call.

        Raises:
            ConfigError: the specification makes no sense, or a file that it names cannot be read.
            StateError: no member answers, or it refuses.
        """
        super().__init__()
        self._root = "/" + "/".join(part for part in (spec.root or DEFAULT_ROOT).split("/") if part)
        self._period_s = session_timeout_s / 3
        read_credentials(spec)  # a file that cannot be read is reported now
        if (spec.ca_file or spec.certificate_file) and not all(tls for _, _, tls in parse_endpoints(spec.connection)):
            raise ConfigError(f"etcd at {spec.connection}: with {CA_KEY} or {CERTIFICATE_KEY} endpoints need https://")
        self._gateway = Gateway(
            spec.connection,
            attempt_timeout_s=max(0.5, self._period_s),
            tls=lambda: tls_context(spec),
            credentials=lambda: read_credentials(spec),
        )
        self._sessions = Sessions(
            self._gateway,
            self._root,
            spec.connection,
            session_timeout_s=session_timeout_s,
            call_timeout_s=call_timeout_s,
        )
        self._sessions.opened = self._keep_running
        self._sessions.lost = self._session_lost
        self._watches = EtcdWatches(self._sessions, spec.connection)
        # Guards the tables; never held during a call.
        self._tables = threading.Lock()
        self._owned: dict[str, _Owned] = {}
        self._abandoned: set[str] = set()  # paths where this session may have an unwanted node
        self._wake = threading.Event()
        self._keeper: threading.Thread | None = None
        try:
            self.list(Kind.TOPOLOGIES)
        except BaseException:
            self._closed = True
            self._gateway.close()
            raise

    # Reading

    def get(self, kind: Kind, topology: str) -> bytes | None:
        path = self._path(kind, topology)
        kvs = self._sessions.call(f"read {path}", "kv/range", range_of(path)).get("kvs")
        return Found.of(kvs[0]).value if kvs else None

    def list(self, kind: Kind) -> list[str]:
        self._check_usable()
        prefix = f"{self._root}/{kind.value}/"
        body = {**folder_of(prefix), "keys_only": True, "limit": str(_LIST_MAX)}
        names: list[str] = []
        while True:
            answer = self._sessions.call(f"list {prefix}", "kv/range", body)
            found = [Found.of(kv).key for kv in answer.get("kvs", ())]
            names += [key.removeprefix(prefix) for key in found]
            if not answer.get("more"):
                return sorted(name for name in names if "/" not in name)
            body["key"] = range_of(found[-1] + "\0")["key"]
            body["revision"] = answer["header"]["revision"]

    # Changing

    def set(self, kind: Kind, topology: str, value: bytes) -> None:
        path = self._path(kind, topology)
        _check_size(path, value)
        with self._sessions.turn():
            written = self._write(path, value, [path], [])
            while not written.done:
                (found,) = written.found
                written = self._write_over(path, value, found, written.session, [path], [])
            self._own(path, value, written.session)

    def set_if(
        self, kind: Kind, topology: str, value: bytes, *, expected: bytes | None, of: Kind | None = None
    ) -> bool:
        check_condition(kind, expected, of)
        path, compared = self._path(kind, topology), self._path(of or kind, topology)
        _check_size(path, value)
        keys = [path, compared]
        conditions = [revision_is(compared, 0) if expected is None else value_is(compared, expected)]
        with self._sessions.turn():
            written = self._write(path, value, keys, conditions)
            while not written.done:
                found, other = written.found
                if (None if other is None else other.value) != expected:
                    return False
                written = self._write_over(path, value, found, written.session, keys, conditions)
            self._own(path, value, written.session)
        return True

    def _write(self, path: str, value: bytes, keys: Sequence[str], conditions: Sequence[Json]) -> Written:
        """Replace a node if it is as it nearly always is: ours if we own it, else without an owner or not there."""
        owned = path in self._owned

        def change(session: Session) -> tuple[Sequence[Json], Sequence[Json]]:
            lease = session.lease if owned else 0
            return [lease_is(path, lease), *conditions], [put(path, value, lease)]

        return self._sessions.write(f"write {path}", keys, change)

    def _write_over(
        self,
        path: str,
        value: bytes,
        found: Found | None,
        session: Session,
        keys: Sequence[str],
        conditions: Sequence[Json],
    ) -> Written:
        """Replace a node if it still is what was found, and that may be replaced."""
        self._check_owner(path, found, session)
        owned = path in self._owned

        def change(session: Session) -> tuple[Sequence[Json], Sequence[Json]]:
            lease = 0 if not owned else session.lease if found is None else found.lease
            revision = 0 if found is None else found.revision
            return [revision_is(path, revision), *conditions], [put(path, value, lease)]

        return self._sessions.write(f"write {path}", keys, change)

    def _check_owner(self, path: str, found: Found | None, session: Session) -> None:
        if found is not None and found.lease not in (0, session.lease):
            raise AlreadyExistsError(f"{path} belongs to another live process: only its owner may change it")

    def create(self, kind: Kind, topology: str, value: bytes, *, ephemeral: bool = False) -> None:
        path = self._path(kind, topology)
        _check_size(path, value)
        if not ephemeral:
            self._make(path, value, ephemeral=False)
            return
        with self._sessions.turn():
            self._remove_abandoned(path)
            try:
                session = self._make(path, value, ephemeral=True)
            except StateError:
                # It may have been made: the caller will not look after it.
                self._abandon(path)
                raise
            with self._tables:
                self._owned[path] = _Owned(value, session.lease)

    def _make(self, path: str, value: bytes, *, ephemeral: bool) -> Session:
        written = self._sessions.write(
            f"create {path}",
            [],
            lambda session: ([revision_is(path, 0)], [put(path, value, session.lease if ephemeral else 0)]),
        )
        if not written.done:
            raise AlreadyExistsError(f"{path} exists already")
        return written.session

    def _abandon(self, path: str) -> None:
        with self._tables:
            self._abandoned.add(path)
        self._wake.set()

    def _own(self, path: str, value: bytes, session: Session) -> None:
        with self._tables:
            if path in self._owned:
                self._owned[path] = _Owned(value, session.lease)

    def delete(self, kind: Kind, topology: str) -> bool:
        path = self._path(kind, topology)
        with self._sessions.turn():
            with self._tables:
                self._owned.pop(path, None)
            written = self._sessions.write(
                f"delete {path}",
                [],
                lambda _: ([exists(path)], [delete(path)]),
            )
            return written.done

    def _delete_own(self, kind: Kind, name: str, value: bytes) -> bool:
        path = self._path(kind, name)
        with self._sessions.turn():
            with self._tables:
                self._owned.pop(path, None)
            try:
                return self._sessions.write(
                    f"delete {path}",
                    [],
                    lambda session: ([lease_is(path, session.lease), value_is(path, value)], [delete(path)]),
                ).done
            except StateError:
                self._abandon(path)
                raise

    # Watching

    def watch(self, kind: Kind, topology: str, callback: Callable[[bytes | None], None]) -> Watch:
        path = self._path(kind, topology)
        self._keep_running()
        return self._watches.add(f"{kind.value}/{topology}", path, callback)

    # The keeper

    def _keep_running(self) -> None:
        with self._tables:
            if self._keeper is None and not self._closed:
                self._keeper = threading.Thread(target=self._keep, name="statemgr-etcd", daemon=True)
                self._keeper.start()

    def _session_lost(self) -> None:
        self._wake.set()

    def _keep(self) -> None:
        """What makes ephemeral nodes outlive sessions, and notices that an endpoint is dead. One thread."""
        pause_s, trouble = self._period_s, False
        while not self._closed:
            self._wake.wait(pause_s)
            self._wake.clear()
            if self._closed:
                return
            pause_s = self._period_s
            try:
                self._sessions.keep_alive()
                if not self._keep_all():
                    pause_s = _RETRY_S
                # A stream may be dead without having ended: its endpoint hung, or its host was cut off for a while.
                if trouble or self._watches.endpoint not in (None, self._gateway.current):
                    self._watches.look_again()
                trouble = False
            except (NotSentError, NoAnswerError, RefusedError) as e:
                if not trouble and not self._closed:
                    log.warning("etcd: the session cannot be kept alive now: %s", e)
                if self._watches.endpoint not in (None, self._gateway.current):
                    self._watches.look_again()
                trouble, pause_s = True, _RETRY_S
            except Exception:
                # Whatever it is: without this thread the session expires, and nothing would notice its end.
                if not self._closed:
                    log.exception("will try again to look after nodes in etcd")

    def _keep_all(self) -> bool:
        """Look after everything that is due. One that fails does not keep the others waiting for the next round."""
        with self._tables:
            current = self._sessions.current
            lost = [p for p, owned in self._owned.items() if current is None or owned.lease != current.lease]
            abandoned = list(self._abandoned)
        done = True
        for step, paths in ((self._remake, lost), (self._remove_abandoned, abandoned)):
            for path in paths:
                try:
                    step(path)
                except StateError as e:
                    done = False
                    if self._closed:
                        return False
                    log.info("%s: will try again", e)
        return done

    def _remake(self, path: str) -> None:
        with self._sessions.turn():
            session = self._sessions.ensure()
            with self._tables:
                owned = self._owned.get(path)
            if owned is None or owned.lease == session.lease:
                return
            if path.startswith(f"{self._root}/{Kind.LOCKS.value}/"):
                # Somebody may have held it meanwhile; a lock is never taken twice in silence.
                log.error("%s: the lock was lost with the session", path)
                made = False
            else:
                try:
                    session = self._make(path, owned.value, ephemeral=True)
                    made = True
                    log.info("%s is made again in a new session", path)
                except AlreadyExistsError:
                    made = False
                    log.error("%s was taken by somebody else after the session was lost", path)
            with self._tables:
                if made:
                    owned.lease = session.lease
                else:
                    self._owned.pop(path, None)

    def _remove_abandoned(self, path: str) -> None:
        with self._sessions.turn():
            if path in self._abandoned and path not in self._owned:
                self._sessions.write(
                    f"delete {path}", [], lambda session: ([lease_is(path, session.lease)], [delete(path)])
                )
            with self._tables:
                self._abandoned.discard(path)

    # Ending, and shared parts

    def _close(self) -> None:
        self._sessions.closed = True
        self._wake.set()
        self._watches.close()
        self._sessions.end(_CLOSE_S)
        self._gateway.close()
        with self._tables:  # the keeper runs, or never will
            keeper = self._keeper
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join(_CLOSE_S)

    def _path(self, kind: Kind, name: str) -> str:
        self._check_usable()
        return f"{self._root}/{kind.value}/{check_node(kind, name)}"


def _check_size(path: str, value: bytes) -> None:
    if len(value) > VALUE_BYTES_MAX:
        raise StateError(f"{path}: {len(value)} bytes are too many for etcd, which takes {VALUE_BYTES_MAX}")
