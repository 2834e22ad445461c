"""Supervision decides alone: time is an argument, processes are numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.config import ExecutorConfig
from heronpy.supervision import (
    DumpStacks,
    Effect,
    Event,
    Exited,
    Hung,
    Kill,
    Phase,
    RestartRequested,
    Start,
    Started,
    StartFailed,
    StopRequested,
    Supervision,
    Terminate,
    Ticked,
    Wanted,
)

CONFIG = ExecutorConfig(restart_backoff_ms=100, restart_backoff_max_ms=1000, stable_ms=30_000, stop_timeout_ms=5000)


class Harness:
    """Answers every Start at once with a new pid, and checks the invariants after every event."""

    def __init__(self) -> None:
        self.supervision = Supervision(CONFIG)
        self.effects: list[Effect] = []
        self._pids: Iterator[int] = iter(range(1, 1_000_000))

    def on(self, event: Event) -> list[Effect]:
        effects = self.supervision.on(event)
        self.supervision.check_invariants()
        for effect in list(effects):
            if isinstance(effect, Start):
                effects += self.on(Started(effect.id, next(self._pids), event.now_ms))
        return effects

    def pid(self, id: str) -> int:
        return self.supervision.pids[id]


@pytest.fixture
def container() -> Harness:
    harness = Harness()
    harness.on(Wanted({"a": 0, "b": 0, "stmgr-1": 1, "metricsmgr-1": 2}, 0))
    return harness


def test_all_processes_start_at_once() -> None:
    effects = Harness().on(Wanted({"a": 0, "stmgr-1": 1, "metricsmgr-1": 2}, 0))
    assert effects == [Start("a"), Start("stmgr-1"), Start("metricsmgr-1")]


def test_while_all_processes_run_nothing_comes_due_and_a_death_ends_that(container: Harness) -> None:
    assert container.supervision.all_run
    assert container.on(Ticked(1e9)) == []
    container.on(Exited("a", container.pid("a"), 1e9))
    assert not container.supervision.all_run
    container.on(Ticked(2e9))
    assert container.supervision.all_run
    container.on(StopRequested(2e9))
    assert not container.supervision.all_run


def test_a_dead_process_starts_again_after_the_pause(container: Harness) -> None:
    assert container.on(Exited("a", container.pid("a"), 1000)) == []
    assert container.on(Ticked(1099)) == []
    assert container.on(Ticked(1100)) == [Start("a")]


def test_the_pause_doubles_with_each_quick_death_up_to_its_bound(container: Harness) -> None:
    now, pauses = 0.0, []
    for _ in range(6):
        container.on(Exited("a", container.pid("a"), now))
        died = now
        while "a" not in container.supervision.pids:
            now += 10
            container.on(Ticked(now))
        pauses.append(now - died)
    assert pauses == [100, 200, 400, 800, 1000, 1000]


def test_a_process_that_was_stable_starts_again_with_the_shortest_pause(container: Harness) -> None:
    for _ in range(4):
        container.on(Exited("a", container.pid("a"), 0))
        container.on(Ticked(2000))
    container.on(Exited("a", container.pid("a"), 2000 + CONFIG.stable_ms))
    assert container.on(Ticked(2100 + CONFIG.stable_ms)) == [Start("a")]


def test_a_process_that_dies_for_days_does_not_overflow_the_pause() -> None:
    assert Supervision(CONFIG).pause_ms(10**6) == CONFIG.restart_backoff_max_ms


def test_a_start_that_the_system_refuses_is_tried_again_after_the_pause() -> None:
    supervision = Supervision(CONFIG)
    assert supervision.on(Wanted({"a": 0}, 0)) == [Start("a")]
    assert supervision.on(StartFailed("a", 0)) == []
    assert supervision.on(Ticked(100)) == [Start("a")]


def test_a_stop_ends_instances_then_the_stream_manager_then_the_metrics_manager(container: Harness) -> None:
    pids = container.supervision.pids
    assert container.on(StopRequested(0)) == [Terminate("a", pids["a"]), Terminate("b", pids["b"])]
    assert container.on(Exited("a", pids["a"], 10)) == []
    assert container.on(Exited("b", pids["b"], 20)) == [Terminate("stmgr-1", pids["stmgr-1"])]
    assert container.on(Exited("stmgr-1", pids["stmgr-1"], 30)) == [Terminate("metricsmgr-1", pids["metricsmgr-1"])]
    assert not container.supervision.finished
    container.on(Exited("metricsmgr-1", pids["metricsmgr-1"], 40))
    assert container.supervision.finished


def test_a_process_that_ignores_the_stop_is_killed_after_the_timeout(container: Harness) -> None:
    pids = container.supervision.pids
    container.on(StopRequested(0))
    container.on(Exited("b", pids["b"], 0))
    assert container.on(Ticked(CONFIG.stop_timeout_ms - 1)) == []
    assert container.on(Ticked(CONFIG.stop_timeout_ms)) == [Kill("a", pids["a"])]
    assert container.on(Ticked(CONFIG.stop_timeout_ms + 1)) == []


def test_nothing_starts_again_after_a_stop(container: Harness) -> None:
    pids = container.supervision.pids
    container.on(Exited("a", pids["a"], 0))
    container.on(StopRequested(10))
    assert container.on(Ticked(10_000)) == [Kill("b", pids["b"])]
    assert container.on(Wanted({"a": 0, "c": 0}, 10_001)) == []


def test_a_process_that_was_just_being_started_when_the_stop_came_ends_too() -> None:
    supervision = Supervision(CONFIG)
    supervision.on(Wanted({"a": 0}, 0))
    assert supervision.on(StopRequested(1)) == []
    assert supervision.on(Started("a", 7, 2)) == [Terminate("a", 7)]
    supervision.on(Exited("a", 7, 3))
    assert supervision.finished


def test_a_stop_before_the_first_plan_finishes_at_once() -> None:
    supervision = Supervision(CONFIG)
    supervision.on(StopRequested(0))
    assert supervision.finished


def test_a_new_plan_starts_what_is_new_and_ends_what_is_gone(container: Harness) -> None:
    gone = container.pid("b")
    effects = container.on(Wanted({"a": 0, "c": 0, "stmgr-1": 1, "metricsmgr-1": 2}, 50))
    assert effects == [Terminate("b", gone), Start("c")]
    container.on(Exited("b", gone, 60))
    assert "b" not in container.supervision.phases


def test_an_instance_that_comes_back_while_it_ends_starts_again(container: Harness) -> None:
    everything = {"a": 0, "b": 0, "stmgr-1": 1, "metricsmgr-1": 2}
    without = {id: stage for id, stage in everything.items() if id != "b"}
    first = container.pid("b")
    container.on(Wanted(without, 10))
    assert container.on(Wanted(everything, 20)) == []
    assert container.on(Exited("b", first, 30)) == [Start("b")]


def test_an_instance_that_leaves_the_plan_while_it_waits_for_its_restart_is_forgotten(container: Harness) -> None:
    container.on(Exited("b", container.pid("b"), 0))
    container.on(Wanted({"a": 0}, 10))
    assert "b" not in container.supervision.phases


def test_a_restart_on_purpose_ends_the_process_and_starts_it_without_a_pause(container: Harness) -> None:
    pid = container.pid("a")
    assert container.on(RestartRequested(("a",), 100)) == [Terminate("a", pid)]
    assert container.on(Exited("a", pid, 150)) == [Start("a")]


def test_a_restart_on_purpose_ends_the_pause_of_a_dead_process(container: Harness) -> None:
    container.on(Exited("a", container.pid("a"), 0))
    assert container.on(RestartRequested(("a",), 1)) == [Start("a")]


def test_the_second_report_of_a_death_changes_nothing(container: Harness) -> None:
    pid = container.pid("a")
    container.on(Exited("a", pid, 0))
    container.on(Ticked(100))
    assert container.on(Exited("a", pid, 200)) == []
    assert container.supervision.phases["a"] is Phase.RUNNING


@given(st.data())
def test_whatever_happens_a_stop_always_ends_everything(data: st.DataObject) -> None:
    harness, now = Harness(), 0.0
    names = ["a", "b", "stmgr-1", "metricsmgr-1"]
    for _ in range(data.draw(st.integers(0, 30))):
        now += data.draw(st.integers(0, 3000))
        running = sorted(harness.supervision.pids.items())
        choices = ["wanted", "restart", "tick", *(["exit"] if running else [])]
        match data.draw(st.sampled_from(choices)):
            case "wanted":
                chosen = data.draw(st.sets(st.sampled_from(names)))
                harness.on(Wanted({id: names.index(id) // 2 for id in names if id in chosen}, now))
            case "restart":
                harness.on(RestartRequested(tuple(data.draw(st.sets(st.sampled_from(names)))), now))
            case "exit":
                id, pid = data.draw(st.sampled_from(running))
                harness.on(Exited(id, pid, now))
            case _:
                harness.on(Ticked(now))
    harness.on(StopRequested(now))
    for _ in range(len(names)):
        # Nobody listens to SIGTERM: each stage ends by Kill.
        now += CONFIG.stop_timeout_ms
        for effect in harness.on(Ticked(now)):
            if isinstance(effect, Kill):
                harness.on(Exited(effect.id, effect.pid, now))
    assert harness.supervision.finished


def test_a_hung_process_writes_its_stacks_is_killed_and_started_again(container: Harness) -> None:
    pid = container.pid("a")
    assert container.on(Hung("a", pid, False, 1000)) == [DumpStacks("a", pid)]
    assert container.on(Hung("a", pid, False, 1500)) == []
    assert container.on(Ticked(1999)) == []
    assert container.on(Ticked(2000)) == [Kill("a", pid)]
    assert container.on(Exited("a", pid, 2010)) == []
    assert container.on(Ticked(2110)) == [Start("a")]


def test_a_stopped_process_is_killed_at_once(container: Harness) -> None:
    pid = container.pid("a")
    assert container.on(Hung("a", pid, True, 1000)) == [Kill("a", pid)]


def test_a_hung_process_of_before_is_no_reason_to_kill_its_successor(container: Harness) -> None:
    pid = container.pid("a")
    container.on(Exited("a", pid, 1000))
    container.on(Ticked(1100))
    assert container.on(Hung("a", pid, False, 1200)) == []


def test_a_stop_while_a_process_is_hung_ends_everything(container: Harness) -> None:
    pid = container.pid("a")
    container.on(Hung("a", pid, False, 1000))
    container.on(StopRequested(1100))
    assert Kill("a", pid) in container.on(Ticked(2000))
    container.on(Exited("a", pid, 2010))
    for id in ("b", "stmgr-1", "metricsmgr-1"):
        container.on(Exited(id, container.pid(id), 2100))
    assert container.supervision.finished


def test_a_process_that_dies_too_often_within_the_window_is_in_a_crash_loop(container: Harness) -> None:
    now = 0.0
    for death in range(5):
        assert not container.supervision.in_crash_loop("a", now), death
        now += 100_000
        container.on(Exited("a", container.pid("a"), now))
        container.on(Ticked(now + 100))
    assert container.supervision.in_crash_loop("a", now)
    assert not container.supervision.in_crash_loop("a", now + 300_000)
    assert not container.supervision.in_crash_loop("b", now)
