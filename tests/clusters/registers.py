"""What many clients did with one register, and whether a register could have answered so.

Each value carries its version: a client reads version n and replaces it by n + 1, by compare-and-set. So the order of
all values is known, and a history is linearizable if no operation goes back behind one that had ended before it began.
"""

from __future__ import annotations

import threading
import time
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from heronpy.errors import StateError, UnavailableError
from heronpy.statemgr import Kind, StateManager

KIND, NAME = Kind.EPOCHS, "register"


@dataclass(frozen=True, slots=True)
class Operation:
    """One that was answered."""

    client: int
    what: str
    """`read`, or `write` for a compare-and-set that succeeded."""
    value: bytes
    began_s: float
    ended_s: float

    @property
    def version(self) -> int:
        return version_of(self.value)


def version_of(value: bytes | None) -> int:
    return 0 if value is None else int(value.partition(b" ")[0])


@dataclass(slots=True)
class History:
    """All operations of all clients, each appended by one thread."""

    operations: list[Operation] = field(default_factory=list)
    attempted: set[bytes] = field(default_factory=set)
    unanswered: int = 0
    sections: list[tuple[float, float, int]] = field(default_factory=list)
    """When a lock was held, and by whom; without those that were lost, and said so."""
    lost_locks: int = 0

    def check(self) -> None:
        """Raise AssertionError if no register and no lock could have behaved so."""
        writes = Counter(op.version for op in self.operations if op.what == "write")
        assert [version for version, n in writes.items() if n > 1] == [], "a version was written twice"
        values: dict[int, bytes] = {}
        for op in self.operations:
            assert op.version == 0 or op.value in self.attempted, f"nobody has written {op.value!r}"
            assert values.setdefault(op.version, op.value) == op.value, "one version, two values"
        by_end = sorted(self.operations, key=lambda op: op.ended_s)
        ends = [op.ended_s for op in by_end]
        newest: list[int] = [0]
        for op in by_end:
            newest.append(max(newest[-1], op.version))
        for op in self.operations:
            known = newest[bisect_left(ends, op.began_s)]
            least = known + 1 if op.what == "write" else known
            assert op.version >= least, f"{op} came after version {known} was known"
        sections = sorted(self.sections)
        for (_, left_s, one), (entered_s, _, other) in pairwise(sections):
            assert left_s <= entered_s, f"clients {one} and {other} held the lock at once"


class Client:
    """Reads, replaces and locks until it is told to stop. A thread."""

    def __init__(self, number: int, state: StateManager, history: History) -> None:
        self._number, self._state, self._history = number, state, history
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"client-{number}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(180.0)
        assert not self._thread.is_alive(), f"client {self._number} hangs"
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with self._answered():
                    value = self._read()
                    self._replace(value)
                with self._answered():
                    self._lock()
        except BaseException as e:
            self._failed = e

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except (StateError, UnavailableError):
            self._history.unanswered += 1

    def _read(self) -> bytes | None:
        began_s = time.monotonic()
        value = self._state.get(KIND, NAME)
        self._history.operations.append(Operation(self._number, "read", value or b"0", began_s, time.monotonic()))
        return value

    def _replace(self, before: bytes | None) -> None:
        value = b"%d %d %s" % (version_of(before) + 1, self._number, uuid.uuid4().hex.encode())
        self._history.attempted.add(value)
        began_s = time.monotonic()
        if self._state.set_if(KIND, NAME, value, expected=before):
            self._history.operations.append(Operation(self._number, "write", value, began_s, time.monotonic()))

    def _lock(self) -> None:
        section = None
        try:
            with self._state.lock(NAME, "section", timeout_s=0.05):
                entered_s = time.monotonic()
                time.sleep(0.002)
                section = (entered_s, time.monotonic(), self._number)
        except StateError:
            # Lost, or its end was not answered: it may have been somebody else's, too, and its holder was told so.
            self._history.lost_locks += section is not None
            raise
        assert section is not None
        self._history.sections.append(section)
