"""The set of culprits: overlapping episodes end with the last one, and each culprit's time is its own."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heronpy.stmgr import Culprits

ME = "stmgr-1"
stmgrs = st.sampled_from([ME, "stmgr-2", "stmgr-3"])
names = st.sampled_from(["container_1_a_1", "container_1_b_2", "stmgr-2"])


def test_overlapping_episodes_end_with_the_last() -> None:
    state = Culprits(ME)
    assert state.started(ME, "a", 10)
    assert not state.started(ME, "a", 11)  # it was one before
    assert state.started("stmgr-2", "b", 20)
    assert state.stopped(ME, "a", 30)
    assert state
    assert state.stopped("stmgr-2", "b", 50)
    assert not state
    assert not state.stopped("stmgr-2", "b", 60)
    assert state.spent_ns(100) == {"a": 20}
    assert state.held_ns(100) == 40


def test_what_a_lost_peer_announced_is_forgotten_and_nothing_else() -> None:
    state = Culprits(ME)
    state.started("stmgr-2", "a", 0)
    state.started("stmgr-2", "b", 0)
    state.started("stmgr-3", "a", 0)
    state.started(ME, "stmgr-2", 0)
    state.lost("stmgr-2", 5)
    assert {(c.stmgr, c.id) for c in state} == {("stmgr-3", "a"), (ME, "stmgr-2")}
    assert state.local() == ["stmgr-2"]


class AgainstAModel(RuleBasedStateMachine):
    """The model keeps every moment at which somebody was a culprit."""

    def __init__(self) -> None:
        super().__init__()
        self.state = Culprits(ME)
        self.now_ns = 0
        self.culprits: set[tuple[str, str]] = set()
        self.spent_ns: dict[str, int] = {}
        self.held_ns = 0

    @rule(passed_ns=st.integers(0, 10**12))
    def time_passes(self, passed_ns: int) -> None:
        self.now_ns += passed_ns
        if self.culprits:
            self.held_ns += passed_ns
        for stmgr, name in self.culprits:
            if stmgr == ME:
                self.spent_ns[name] = self.spent_ns.get(name, 0) + passed_ns

    @rule(stmgr=stmgrs, name=names)
    def starts(self, stmgr: str, name: str) -> None:
        assert self.state.started(stmgr, name, self.now_ns) == ((stmgr, name) not in self.culprits)
        self.culprits.add((stmgr, name))

    @rule(stmgr=stmgrs, name=names)
    def stops(self, stmgr: str, name: str) -> None:
        assert self.state.stopped(stmgr, name, self.now_ns) == ((stmgr, name) in self.culprits)
        self.culprits.discard((stmgr, name))

    @rule(peer=st.sampled_from(["stmgr-2", "stmgr-3"]))
    def is_lost(self, peer: str) -> None:
        self.state.lost(peer, self.now_ns)
        self.culprits = {c for c in self.culprits if c[0] != peer}

    @invariant()
    def agrees(self) -> None:
        self.state.check_invariants(self.now_ns)
        assert {(c.stmgr, c.id) for c in self.state} == self.culprits
        assert bool(self.state) == bool(self.culprits)
        assert sorted(self.state.local()) == sorted(name for stmgr, name in self.culprits if stmgr == ME)
        assert {k: v for k, v in self.state.spent_ns(self.now_ns).items() if v} == {
            k: v for k, v in self.spent_ns.items() if v
        }
        assert self.state.held_ns(self.now_ns) == self.held_ns


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
