"""The one definition of health: what was observed in, a state with reasons in words out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.health import (
    CRASH_LOOP_RESTARTS,
    RECENT_RESTARTS_METRIC,
    RESTART_WINDOW_S,
    RESTARTS_METRIC,
    START_S,
    CheckpointProgress,
    Health,
    HealthState,
    Kind,
    Observed,
    Outcomes,
    RestartLog,
    Silence,
    assess,
    capacity,
    unreachable,
)

HEALTHY, STARTING, DEGRADED, UNHEALTHY = HealthState


def test_a_topology_of_which_nothing_is_wrong_is_healthy_without_reasons() -> None:
    assert assess(Observed(outcomes={"word": Outcomes(1000, 10)})) == Health(HEALTHY)


def test_25_restarts_of_a_bolt_and_all_tuples_failed_are_unhealthy_and_say_why() -> None:
    health = assess(
        Observed(restarts={"container_1_count_3": 25}, outcomes={"word": Outcomes(5000, 5000), "count": Outcomes(0, 0)})
    )
    assert health.state is UNHEALTHY
    assert health.restarts == 25
    assert [reason.text for reason in health.reasons] == [
        "crash loop in the last 10 min: container_1_count_3 (25 restarts)",
        "100 % of the tuples of word failed in the last 5 min: 5,000 of 5,000 tuples",
    ]


def test_a_topology_without_new_checkpoints_says_since_when_and_what_they_wait_for() -> None:
    obstacle = "checkpoint 7 waits for the snapshots of tasks 3"
    progress = CheckpointProgress(
        interval_s=10, age_s=90, obstacle=obstacle, rollbacks=4, last_rollback="task 3: KeyError"
    )
    assert [reason.text for reason in assess(Observed(checkpoints=progress)).reasons] == [
        f"no checkpoint for 90 s, and one is wanted every 10 s: {obstacle}",
        "rolled back 4 times in the last 10 min: task 3: KeyError",
    ]


@pytest.mark.parametrize(
    ("observed", "state", "kind"),
    [
        (Observed(ready=False, not_ready_s=5, unregistered=["stmgr-1"]), STARTING, Kind.READY),
        (Observed(ready=False, not_ready_s=100, unregistered=["stmgr-1"]), UNHEALTHY, Kind.READY),
        (Observed(ready=False, not_ready_s=5, was_ready=True, detached=["a"]), DEGRADED, Kind.READY),
        (Observed(restarts={"a": 1}), DEGRADED, Kind.RESTARTS),
        (Observed(restarts={"a": CRASH_LOOP_RESTARTS}), UNHEALTHY, Kind.RESTARTS),
        (Observed(outcomes={"a": Outcomes(100, 2)}), DEGRADED, Kind.FAILURES),
        (Observed(outcomes={"a": Outcomes(3, 3)}), DEGRADED, Kind.FAILURES),
        (Observed(outcomes={"a": Outcomes(100, 20)}), UNHEALTHY, Kind.FAILURES),
        (Observed(silent=[Silence("a", 40)]), DEGRADED, Kind.SILENCE),
        (Observed(silent=[Silence("a", 400)]), UNHEALTHY, Kind.SILENCE),
        (Observed(throttled={"a": 0.95}), DEGRADED, Kind.BACKPRESSURE),
        (Observed(checkpoints=CheckpointProgress(interval_s=10, age_s=None)), HEALTHY, None),
        (Observed(checkpoints=CheckpointProgress(interval_s=0.5, age_s=59)), HEALTHY, None),
        (Observed(checkpoints=CheckpointProgress(interval_s=60, age_s=299)), HEALTHY, None),
        (Observed(checkpoints=CheckpointProgress(interval_s=60, age_s=301)), DEGRADED, Kind.CHECKPOINTS),
        (Observed(checkpoints=CheckpointProgress(interval_s=10, age_s=301)), UNHEALTHY, Kind.CHECKPOINTS),
        (Observed(checkpoints=CheckpointProgress(interval_s=10, age_s=1, rollbacks=2)), HEALTHY, None),
        (Observed(checkpoints=CheckpointProgress(interval_s=10, age_s=1, rollbacks=3)), DEGRADED, Kind.CHECKPOINTS),
        (Observed(throttled={"a": 0.1}), HEALTHY, None),
        (Observed(held_back={("numbers", "windows"): 0.5}), DEGRADED, Kind.PENDING),
        (Observed(held_back={("numbers", "windows"): 0.1}), HEALTHY, None),
        (Observed(dead_letters={"words": 1}), DEGRADED, Kind.DEAD_LETTERS),
        (Observed(dead_letters={"words": 0}), HEALTHY, None),
    ],
)
def test_each_fault_alone_has_its_state(observed: Observed, state: HealthState, kind: Kind | None) -> None:
    health = assess(observed)
    assert health.state is state
    assert [reason.kind for reason in health.reasons] == ([kind] if kind else [])


def test_the_worst_reason_decides_and_stands_first() -> None:
    health = assess(Observed(restarts={"a": 1}, outcomes={"b": Outcomes(100, 90)}))
    assert health.state is UNHEALTHY
    assert [reason.kind for reason in health.reasons] == [Kind.FAILURES, Kind.RESTARTS]


def test_a_reason_names_three_processes_and_counts_the_others() -> None:
    (reason,) = assess(Observed(silent=[Silence(f"p{n}", 60 - n) for n in range(5)])).reasons
    assert reason.text == "no reports for 60 s: p0, p1, p2 and 2 more"


def test_restarts_before_the_first_report_of_an_executor_count() -> None:
    restarts = RestartLog()
    restarts.observe(f"{RESTARTS_METRIC}a", 7, 100.0)
    restarts.observe(f"{RECENT_RESTARTS_METRIC}a", 4, 100.0)
    restarts.observe(f"{RESTARTS_METRIC}b", 0, 100.0)
    restarts.observe(f"{RECENT_RESTARTS_METRIC}b", 0, 100.0)
    restarts.observe("__uptime-secs", 100, 100.0)
    assert restarts.totals == {"a": 7, "b": 0}
    assert restarts.recent(100.0) == {"a": 4}
    restarts.observe(f"{RECENT_RESTARTS_METRIC}a", 1, 110.0)
    assert restarts.recent(110.0) == {"a": 1}
    assert restarts.recent(111.0 + RESTART_WINDOW_S) == {}, "its container reports no more"
    restarts.keep({"b"})
    assert (restarts.totals, restarts.recent(110.0)) == ({"b": 0}, {})


@pytest.mark.parametrize("awaited_s", [-2.0, 0.0, 3.0, START_S])
def test_a_topology_that_was_just_submitted_is_starting(awaited_s: float) -> None:
    health = unreachable("it is not up", awaited_s)
    assert health.state is HealthState.STARTING
    assert f"{max(0, awaited_s):.0f} s after the submit" in health.reasons[0].text


@pytest.mark.parametrize("awaited_s", [None, START_S + 1])
def test_one_whose_topology_master_had_come_up_or_is_late_is_unhealthy(awaited_s: float | None) -> None:
    assert unreachable("it is gone", awaited_s).state is HealthState.UNHEALTHY


@pytest.mark.parametrize("health", [Health(HEALTHY), unreachable("since 12:00"), assess(Observed(restarts={"a": 4}))])
def test_health_survives_its_way_through_protobuf(health: Health) -> None:
    assert Health.from_proto(health.to_proto()) == health


@given(st.floats(0, 1e12), st.floats(1e-9, 1e9))
def test_a_capacity_is_never_above_100_percent(busy_s: float, over_s: float) -> None:
    found = capacity(busy_s, over_s)
    assert found is not None
    assert 0 <= found <= 1
    assert found == pytest.approx(min(1.0, busy_s / over_s))


@pytest.mark.parametrize("over_s", [0.0, -1.0])
def test_the_capacity_over_no_time_is_not_known(over_s: float) -> None:
    assert capacity(1.0, over_s) is None
