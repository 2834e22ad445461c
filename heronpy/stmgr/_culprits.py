"""The culprits of spout backpressure, and how long each of them has throttled the spouts. Pure.

State is a set of culprits, not a flag: two episodes may overlap, and spouts run again when the last one has ended.

*Invariant*: no local culprit has throttled the spouts for longer than they were throttled in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Culprit:
    """An instance, or a link between two Stream Managers, that cannot keep up."""

    stmgr: str
    """The Stream Manager that announces it."""
    id: str
    """Instance id, or the id of the peer at the other end."""


class Culprits:
    """The set of culprits as one Stream Manager knows it."""

    def __init__(self, stmgr: str) -> None:
        self._stmgr = stmgr
        self._since_ns: dict[Culprit, int] = {}
        self._spent_ns: dict[str, int] = {}
        self._held_since_ns = 0
        self._held_ns = 0

    def __bool__(self) -> bool:
        return bool(self._since_ns)

    def __iter__(self) -> Iterator[Culprit]:
        return iter(list(self._since_ns))

    def local(self) -> list[str]:
        """Ids of the local culprits, to announce to a peer that has just connected."""
        return [c.id for c in self._since_ns if c.stmgr == self._stmgr]

    def started(self, stmgr: str, culprit: str, now_ns: int) -> bool:
        """Note a culprit. Returns whether it was none before."""
        key = Culprit(stmgr, culprit)
        if key in self._since_ns:
            return False
        if not self._since_ns:
            self._held_since_ns = now_ns
        self._since_ns[key] = now_ns
        return True

    def stopped(self, stmgr: str, culprit: str, now_ns: int) -> bool:
        """A culprit has caught up, or is gone. Returns whether it was one."""
        since_ns = self._since_ns.pop(Culprit(stmgr, culprit), None)
        if since_ns is None:
            return False
        if stmgr == self._stmgr:
            self._spent_ns[culprit] = self._spent_ns.get(culprit, 0) + now_ns - since_ns
        if not self._since_ns:
            self._held_ns += now_ns - self._held_since_ns
        return True

    def lost(self, stmgr: str, now_ns: int) -> None:
        """Forget what a lost peer announced; it announces again when it is back."""
        for culprit in [c for c in self._since_ns if c.stmgr == stmgr]:
            self.stopped(stmgr, culprit.id, now_ns)

    def spent_ns(self, now_ns: int) -> dict[str, int]:
        """Time each local culprit has throttled the spouts since the start, running episodes included."""
        spent = dict(self._spent_ns)
        for culprit, since_ns in self._since_ns.items():
            if culprit.stmgr == self._stmgr:
                spent[culprit.id] = spent.get(culprit.id, 0) + now_ns - since_ns
        return spent

    def held_ns(self, now_ns: int) -> int:
        """Time the spouts were throttled since the start, whatever caused it."""
        return self._held_ns + (now_ns - self._held_since_ns if self._since_ns else 0)

    def check_invariants(self, now_ns: int) -> None:
        held_ns = self.held_ns(now_ns)
        assert all(0 <= spent_ns <= held_ns for spent_ns in self.spent_ns(now_ns).values())
        assert all(self._held_since_ns <= since_ns <= now_ns for since_ns in self._since_ns.values())
