"""The simulated cluster: what is promised holds under faults, and a run that breaks a promise is found and repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.testing.simulation import (
    Break,
    Cut,
    Detach,
    Expire,
    Kill,
    Ledger,
    Pause,
    Replace,
    Restore,
    Scale,
    Schedule,
    StateAway,
    StateEmptied,
    Stop,
    failure_of,
    run,
    schedule_of,
    shrunk,
    test_of,
)

SPOUT, RELAY = "container_1_source_1", "container_1_relay_3"


@pytest.mark.parametrize("seed", [2, 3, 6])
def test_what_is_promised_holds_with_the_faults_of_a_pinned_seed(seed: int) -> None:
    assert run(seed).ledger.open == []


@pytest.mark.parametrize(
    "faults",
    [
        [(3.0, Kill("stmgr-1", 0.3)), (3.0, Kill("tmaster-0", 20.0))],
        [(3.0, Kill("stmgr-1", 0.3)), (3.2, Kill("tmaster-0", 20.0))],
        [(3.0, Kill("stmgr-1", 0.3)), (3.4, Kill("tmaster-0", 20.0))],
        [(3.0, StateAway(9.0)), (3.1, Kill("stmgr-2", 0.2)), (4.0, Kill("tmaster-0", 5.0))],
    ],
)
def test_data_flows_while_the_topology_master_is_dead_that_was_there_when_a_stream_manager_was_replaced(
    faults: Schedule,
) -> None:
    assert run(6, faults).ledger.open == []


MODES: list[dict[str, bool]] = [{}, {"checkpoints": True}, {"at_least_once": True}]
REPLACED: list[Schedule] = [
    [(3.0, Replace(2, 1.0))],
    [(3.0, Replace(1, 0.1)), (4.0, Kill("tmaster-0", 2.0))],
    [(3.0, Replace(1, 2.0)), (3.1, Kill("stmgr-2", 0.2)), (7.0, Replace(2, 0.5))],
    [(3.0, StateAway(4.0)), (3.1, Replace(2, 0.5))],
]


@pytest.mark.parametrize(
    ("faults", "mode"),
    [  # each of both once or twice; the others take long
        pytest.param(faults, mode, marks=[] if (n + m) % 3 == 0 else pytest.mark.long)
        for n, faults in enumerate(REPLACED)
        for m, mode in enumerate(MODES)
    ],
)
def test_a_container_that_was_replaced_does_no_harm_though_it_goes_on_for_ever(
    faults: Schedule, mode: dict[str, bool]
) -> None:
    found = run(1, faults, **mode)
    assert found.ledger.open == []
    plan = next(node.plan for node in found.stmgrs.values() if node.plan is not None)
    newest = {node.id: node.location.order for node in found.stmgrs.values()}
    assert {location.id: location.order for location in plan.stmgrs} == newest


def test_one_seed_is_one_run() -> None:
    faults = [(1.5, Kill("container_1", 0.5))]
    first, second = run(6, faults), run(6, faults)
    assert (first.loop.steps, first.loop.now_ns, first.ledger.acked) == (
        second.loop.steps,
        second.loop.now_ns,
        second.ledger.acked,
    )


@pytest.mark.parametrize(
    "faults",
    [
        [(2.5, Kill("container_1", 1.0))],
        [(2.5, Stop("stmgr-1", 6.0)), (3.0, Kill(SPOUT, 0.1))],
        [(2.5, Cut("host-1", "host-2", 3.0, one_way=True)), (3.0, Kill(RELAY, 0.1))],
        [(2.5, StateEmptied()), (2.6, Kill("tmaster-0", 0.5))],
        [(2.5, Restore()), (2.505, Kill("tmaster-0", 0.5)), (2.6, Detach("stmgr-1"))],
        [(2.5, Pause(0.5)), (2.51, Expire("tmaster-0", 1.0))],
        [(2.5, Scale("relay", 4)), (2.6, Kill("stmgr-1", 0.3)), (5.0, Scale("relay", 1))],
        [(2.5, StateAway(1.0)), (2.6, Scale("sink", 3)), (2.7, Restore())],
    ],
)
def test_nothing_is_lost_and_nobody_is_stuck_after(faults: Schedule) -> None:
    cluster = run(6, faults, check_every=4)
    assert cluster.ledger.open == []
    assert cluster.ledger.acked


def test_a_failure_is_printed_as_a_test_that_repeats_it() -> None:
    faults = schedule_of(2)
    text = test_of(2, faults, "Broken: nothing", checkpoints=False, at_least_once=False)
    found: dict[str, object] = {"run": lambda seed, schedule: (seed, schedule)}
    kinds = (Break, Cut, Detach, Expire, Kill, Pause, Restore, Scale, StateAway, StateEmptied, Stop)
    names = {each.__name__: each for each in kinds}
    called: list[object] = []
    found["run"] = lambda *args: called.append(args)
    exec(text, found | names, found)
    found["test_what_is_promised_here"].__globals__.update(found)  # type: ignore[attr-defined]  # a function
    found["test_what_is_promised_here"]()  # type: ignore[operator]  # likewise
    assert called == [(2, faults)]


def test_a_promise_that_user_code_finds_broken_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_arrives(_ledger: Ledger, branch: str, number: object) -> None:
        """Forget it."""

    monkeypatch.setattr(Ledger, "arrive", never_arrives)
    assert "was acked, but has not arrived" in failure_of(6, [])


@pytest.mark.parametrize("faults", [[], [(2.0, Scale("sink", 4)), (6.0, Scale("sink", 1))]])
def test_a_cluster_that_emits_in_bursts_has_emitted_and_what_was_scaled_away_counts_no_more(faults: Schedule) -> None:
    assert run(7028, faults, check_every=10).ledger.acked


def test_a_state_manager_is_not_emptied_before_anybody_has_read_it() -> None:
    assert failure_of(3640, [(1.0, StateEmptied())], check_every=10) == ""


def test_an_unknown_process_in_a_schedule_is_nobody() -> None:
    assert failure_of(6, [(1.5, Kill("stmgr-9", 1.0))]) == ""


@given(st.lists(st.integers(0, 30), unique=True, max_size=12), st.sets(st.integers(0, 30), max_size=3))
def test_a_schedule_shrinks_to_what_the_failure_needs(numbers: list[int], needed: set[int]) -> None:
    faults = [(float(number), Kill(f"stmgr-{number}", 1.0)) for number in numbers]
    wanted = {f"stmgr-{number}" for number in needed & set(numbers)}

    def fails(schedule: Schedule) -> bool:
        return wanted <= {fault.process for _, fault in schedule if isinstance(fault, Kill)}

    assert {fault.process for _, fault in shrunk(faults, fails) if isinstance(fault, Kill)} == wanted
