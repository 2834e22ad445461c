"""A session with etcd: a lease, and writes that are done exactly once.

etcd has leases, but no sessions: an answer that is lost with its connection leaves open whether the request was done,
*or still will be*: a member that hung may pass it on when it goes on, long after the caller has repeated it elsewhere
(and, say, has given back the lock that it takes). So each session has a key below the root, attached to its lease, and
each write is a transaction that

- compares the revision of that key with the one that the session knows, and
- puts the id of the write into that key, which gives it a new revision.

After a lost answer one more transaction, of the same form, changes the key under the same condition. If it succeeds,
the write was not done and never can be. If it does not, the key says whether it was done. Either way the answer is
known, and nothing that was given up can be done later (Ongaro's client sessions, with etcd itself as the table of
answers). Price: one write at a time in each process, and a small second put in each.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from heronpy.errors import StateError
from heronpy.statemgr.etcd._gateway import NOT_FOUND, Gateway, NoAnswerError, NotSentError, RefusedError
from heronpy.statemgr.etcd._requests import (
    Found,
    Json,
    found_in,
    put,
    read,
    revision_is,
    revision_of,
    transaction,
)

log = logging.getLogger(__name__)

SESSIONS = "sessions"
"""The folder of the sessions' keys below the root."""
_RETRY_S = 0.05
_CANCELLED = b"cancelled"

T = TypeVar("T")


@dataclass(slots=True)
class Session:
    """A lease, its key, and the key's revision as far as we know."""

    lease: int
    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a write."""

    done: bool
    session: Session
    found: Sequence[Found | None] = ()
    """If it was not done: the keys that it named, as they were."""


Change = Callable[[Session], tuple[Sequence[Json], Sequence[Json]]]
"""What a write compares and what it does, in the session that it is done in."""


class Sessions:
    """The present session of a state manager, made when it is needed first, and again when it was lost."""

    def __init__(
        self, gateway: Gateway, root: str, where: str, *, session_timeout_s: float, call_timeout_s: float
    ) -> None:
        self.gateway = gateway
        self.current: Session | None = None
        self.closed = False
        self.opened: Callable[[], None] = lambda: None
        """Called when there is a session, which `keep_alive` is to renew from now on.

        Also of a process that has no ephemeral nodes: the answer of a write is known only as long as its session lives.
        """
        self.lost: Callable[[], None] = lambda: None
        """Called when the session was lost."""
        self._root, self._where = root, where
        self._session_timeout_s = session_timeout_s
        self._call_timeout_s = call_timeout_s
        self._turn = threading.RLock()

    def deadline_s(self) -> float:
        return time.monotonic() + self._call_timeout_s

    def call(self, what: str, method: str, body: Json, deadline_s: float | None = None) -> Json:
        """A call that may be done more than once, repeated until it is answered or the time is up.

        Raises:
            StateError: etcd did not answer in time, or refuses.
        """
        deadline_s = self.deadline_s() if deadline_s is None else deadline_s
        return self._until(what, deadline_s, lambda left_s: self.gateway.call(method, body, left_s))

    def _until(self, what: str, deadline_s: float, attempt: Callable[[float], T]) -> T:
        trouble, refusals = "", 0
        while (left_s := deadline_s - time.monotonic()) > 0:
            if self.closed:
                raise StateError("the state manager is closed")
            try:
                return attempt(left_s)
            except NotSentError as e:
                trouble = _combined(trouble, e)
                refusals = refusals + 1 if e.refused else 0
                if refusals >= self.gateway.endpoints:
                    raise StateError(f"cannot {what} in etcd at {self._where}: {e.refused}") from e
            except NoAnswerError as e:
                trouble, refusals = _combined(trouble, e), 0
            except RefusedError as e:
                raise self.refusal(what, e) from e
            time.sleep(min(_RETRY_S, max(0.0, deadline_s - time.monotonic())))
        raise StateError(
            f"etcd at {self._where} does not answer (waited {self._call_timeout_s:g} s): "
            f"cannot {what}; is it running? ({trouble or 'no attempt was possible'})"
        )

    def refusal(self, what: str, error: RefusedError) -> StateError:
        hint = ""
        if "permission denied" in error.message:
            hint = f": the user's role needs read and write below {self._root}/"
        elif "authentication failed" in error.message:
            hint = ": the user or password is wrong (heron.statemgr.credentials.file)"
        elif "user name is empty" in error.message:
            hint = ": it requires a user and a password (heron.statemgr.credentials.file)"
        elif "database space exceeded" in error.message:
            hint = ": compact and defragment it, and clear its alarm"
        return StateError(f"etcd at {self._where} refuses to {what}: {error.message}{hint}")

    # Writing

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Change what this session has, one thread at a time; reentrant."""
        if not self._turn.acquire(timeout=self._call_timeout_s):
            raise StateError(f"etcd at {self._where} does not answer: another call is still waiting for it")
        try:
            yield
        finally:
            self._turn.release()

    def write(self, what: str, keys: Sequence[str], change: Change) -> Written:
        """Do a change once, if what it compares is so.

        Args:
            what: For error messages.
            keys: What to read if it is not so.
            change: What it compares and does; called anew for each attempt.

        Raises:
            StateError: unknown whether it was done: etcd did not answer in time, or the session was lost meanwhile.
        """
        with self.turn():
            deadline_s = self.deadline_s()
            while True:
                session = self._opened(deadline_s)
                written = self._attempt(what, session, keys, change, deadline_s)
                if written is not None:
                    return written

    def _attempt(
        self, what: str, session: Session, keys: Sequence[str], change: Change, deadline_s: float
    ) -> Written | None:
        """None: it was certainly not done, and is worth another attempt."""
        write_id = uuid.uuid4().bytes
        compare, do = change(session)
        body = transaction(
            [revision_is(session.key, session.revision), *compare],
            [put(session.key, write_id, session.lease), *do],
            [read(session.key), *(read(key) for key in keys)],
        )
        sent = False

        def once(left_s: float) -> Any:
            nonlocal sent
            try:
                return self.gateway.call("kv/txn", body, left_s)
            except NoAnswerError:
                sent = True
                return None
            except RefusedError as e:
                if e.code != NOT_FOUND:
                    raise
                self._forget(session)  # the lease is gone, and its key is about to be
                return None

        answer = self._until(what, deadline_s, once)
        if sent:
            return Written(True, session) if self._was_done(what, session, write_id, deadline_s) else None
        if answer is None:
            return None
        if answer.get("succeeded"):
            session.revision = revision_of(answer)
            return Written(True, session)
        own, *found = found_in(answer)
        if own is None:
            self._forget(session)
        elif own.revision != session.revision:
            session.revision = own.revision  # by a write that had been given up, and came before this one
        else:
            return Written(False, session, found)
        return None

    def _was_done(self, what: str, session: Session, write_id: bytes, deadline_s: float) -> bool:
        """Settle a write that was not answered: done, or never to be done."""
        body = transaction(
            [revision_is(session.key, session.revision)],
            [put(session.key, _CANCELLED, session.lease)],
            [read(session.key)],
        )
        try:
            answer = self._until(what, deadline_s, lambda left_s: self.gateway.call("kv/txn", body, left_s))
        except StateError as e:
            raise StateError(f"{e}; it may have been done") from e
        if answer.get("succeeded"):
            session.revision = revision_of(answer)
            return False
        (own,) = found_in(answer)
        if own is None:
            self._forget(session)
            raise StateError(f"etcd at {self._where} has lost the session: it may have done this: {what}")
        session.revision = own.revision
        return own.value == write_id

    # The lease

    def _opened(self, deadline_s: float) -> Session:
        if self.current is not None:
            return self.current
        what = "open a session"
        ttl_s = max(1, round(self._session_timeout_s))
        lease = int(self.call(what, "lease/grant", {"TTL": str(ttl_s)}, deadline_s)["ID"])
        key = f"{self._root}/{SESSIONS}/{lease:016x}"
        # Twice does no harm: no other client knows this key.
        answer = self.call(what, "kv/txn", transaction([], [put(key, b"", lease)]), deadline_s)
        self.current = Session(lease, key, revision_of(answer))
        self.opened()
        return self.current

    def _forget(self, session: Session) -> None:
        if self.current is session:
            log.warning("the session with etcd at %s is lost", self._where)
            self.current = None
            self.lost()

    def ensure(self) -> Session:
        """The present session, a new one if there is none. Raises StateError like `write`."""
        with self.turn():
            return self._opened(self.deadline_s())

    def keep_alive(self) -> None:
        """One attempt to renew the lease, or where there is none to reach a quorum.

        Raises:
            NotSentError, NoAnswerError, RefusedError: see there.
        """
        session = self.current
        if session is None:
            body = {**read(f"{self._root}/")["request_range"], "count_only": True}
            self.gateway.call("kv/range", body, self.gateway.attempt_timeout_s)
            return
        try:
            body = {"ID": str(session.lease)}
            answer = self.gateway.call("lease/keepalive", body, self.gateway.attempt_timeout_s)
            left = int(answer.get("result", {}).get("TTL", 0))
        except RefusedError as e:
            if e.code != NOT_FOUND:
                raise
            left = 0
        if left <= 0:
            self._forget(session)

    def end(self, within_s: float) -> None:
        """Give the lease back, with everything that is attached to it; bounded, and not again."""
        deadline_s = time.monotonic() + within_s
        self.closed = True
        while (session := self.current) is not None and (left_s := deadline_s - time.monotonic()) > 0:
            try:
                self.gateway.call("lease/revoke", {"ID": str(session.lease)}, left_s)
            except RefusedError as e:
                if e.code != NOT_FOUND:
                    log.warning("etcd at %s: %s: ephemeral nodes vanish with the session", self._where, e.message)
            except (NotSentError, NoAnswerError):
                time.sleep(_RETRY_S)
                continue
            self.current = None


def _combined(before: str, error: Exception) -> str:
    """What is reported of several attempts: the last one's trouble, unless it only had no time left."""
    return before if before and isinstance(error.__cause__, TimeoutError) else str(error)
