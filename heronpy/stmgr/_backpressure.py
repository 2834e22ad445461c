"""Spout backpressure (Heron paper, §5.4): who causes it, and when it starts and ends. Pure.

State is a set of culprits, not a flag: two episodes may overlap, and spouts run again when the last one has ended. A
culprit is a local link whose outbox is over its high water mark, or what a peer announced. What a peer announced is
forgotten when the peer is lost; it announces again when it comes back.

*Invariant*: spouts are held exactly while the set is not empty; every local culprit that was announced to the peers as
started is announced as stopped once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Culprit:
    """An instance, or a link between two Stream Managers, that cannot keep up."""

    stmgr: str
    """The Stream Manager that announces it."""
    id: str
    """Instance id, or the id of the peer at the other end."""


class Backpressure:
    """The set of culprits as one Stream Manager knows it."""

    def __init__(self, stmgr: str) -> None:
        self._stmgr = stmgr
        self._since_ns: dict[Culprit, int] = {}
        self._spent_ns: dict[str, int] = {}
        self._held_since_ns = 0
        self._held_ns = 0

    @property
    def holds_spouts(self) -> bool:
        return bool(self._since_ns)

    @property
    def culprits(self) -> set[Culprit]:
        return set(self._since_ns)

    def local(self) -> list[str]:
        """Ids of the local culprits, to announce to a peer that has just connected."""
        return [c.id for c in self._since_ns if c.stmgr == self._stmgr]

    def started(self, stmgr: str, culprit: str, now_ns: int) -> bool:
        """Note a culprit. Returns whether it is news."""
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
        """A peer is gone, and with it what it announced."""
        for culprit in [c for c in self._since_ns if c.stmgr == stmgr]:
            self.stopped(stmgr, culprit.id, now_ns)

    def spent_ns(self, now_ns: int) -> dict[str, int]:
        """Time each local culprit has held the spouts since the start, running episodes included."""
        spent = dict(self._spent_ns)
        for culprit, since_ns in self._since_ns.items():
            if culprit.stmgr == self._stmgr:
                spent[culprit.id] = spent.get(culprit.id, 0) + now_ns - since_ns
        return spent

    def held_ns(self, now_ns: int) -> int:
        """Time the spouts were held since the start, whoever caused it."""
        return self._held_ns + (now_ns - self._held_since_ns if self._since_ns else 0)

    def check_invariants(self) -> None:
        assert self.holds_spouts == bool(self.culprits)
        assert all(v >= 0 for v in self._spent_ns.values())
