"""The state manager in ZooKeeper, through kazoo.

kazoo keeps the connection; this file adds what it leaves to its users:

- Time: kazoo's calls wait for ever while the server is away, and its reconnect pauses grow until the session is lost.
  Here every call has a deadline, attempts come at a steady pace, and no single server may use up the session's time.
- Answers that were lost with the connection: the call is repeated, and each operation can detect that its first
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
from typing import Any

from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError

from heronpy.errors import AlreadyExistsError, StateError
from heronpy.statemgr._base import Kind, check_condition
from heronpy.statemgr._zookeeper_attempt import Attempt
from heronpy.statemgr._zookeeper_client import RECONNECT
from heronpy.statemgr._zookeeper_session import DEFAULT_ROOT, Owned, ZookeeperSession

__all__ = ["DEFAULT_ROOT", "RECONNECT", "VALUE_BYTES_MAX", "ZookeeperStateManager"]

VALUE_BYTES_MAX = 1_000_000
"""A server closes the connection on a packet above 1 MiB (jute.maxbuffer), path and header included."""


class ZookeeperStateManager(ZookeeperSession):
    """State in ZooKeeper below `root`."""

    # Reading

    def get(self, kind: Kind, topology: str) -> bytes | None:
        path = self._path(kind, topology)

        def read(attempt: Attempt) -> bytes | None:
            try:
                value: bytes = attempt.read_newest(path)[0]
            except NoNodeError:
                return None
            return value

        return self._call(f"read {path}", read)

    def list(self, kind: Kind) -> list[str]:
        path = f"{self._root}/{kind.value}"

        def read(attempt: Attempt) -> list[str]:
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

    def _replace(self, attempt: Attempt, path: str, value: bytes, *, ephemeral: bool) -> None:
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
                continue  # another client came between: read again
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

    def _compare_and_set(self, attempt: Attempt, path: str, expected: bytes | None, value: bytes) -> bool:
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
                continue  # another client came between: read again
            return True
        raise KazooTimeoutError

    def _fenced_set(self, attempt: Attempt, path: str, value: bytes, compared: str, expected: bytes) -> bool:
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
                return True  # else another client came between: read again
        raise KazooTimeoutError

    def _read_version(self, attempt: Attempt, path: str) -> tuple[bytes, Any] | None:
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
                self._owned[path] = Owned(value, session)
            if session != self._session():
                self._wake.set()

    def _make(self, attempt: Attempt, path: str, value: bytes, *, ephemeral: bool) -> int:
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

    def _is_ours(self, attempt: Attempt, path: str, value: bytes, *, ephemeral: bool) -> bool:
        try:
            found, stat = attempt.wait(attempt.client.get_async(path))
        except NoNodeError:
            return False
        owner = self._session() if ephemeral else 0
        return bool(found == value and stat.ephemeralOwner == owner)

    def delete(self, kind: Kind, topology: str) -> bool:
        path = self._path(kind, topology)

        def remove(attempt: Attempt) -> bool:
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

        def remove(attempt: Attempt) -> bool:
            session = self._session()
            if not self._is_ours(attempt, path, value, ephemeral=True):
                # Gone within one session: by our own earlier attempt, whose answer was lost.
                return attempt.repeated and session == first and self._gone(attempt, path)
            if session != self._session():
                raise SessionExpiredError  # what we saw was seen in another session: read again
            with contextlib.suppress(NoNodeError):
                attempt.wait(attempt.client.delete_async(path))
            return True

        return self._call(f"delete {path}", remove)

    def _gone(self, attempt: Attempt, path: str) -> bool:
        return attempt.wait(attempt.client.exists_async(path)) is None


def _check_size(path: str, value: bytes) -> None:
    if len(value) > VALUE_BYTES_MAX:
        raise StateError(f"{path}: {len(value)} bytes are too many for ZooKeeper, which takes {VALUE_BYTES_MAX}")
