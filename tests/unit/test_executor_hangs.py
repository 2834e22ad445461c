"""Which processes are hung: decided from what their heartbeats say."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from heronpy.supervision import Hang, HangDetector, Look

TIMEOUT_MS = 30_000


class Supervisor:
    """Looks once a second, unless it is held up."""

    def __init__(self) -> None:
        self.detector = HangDetector(TIMEOUT_MS, 1000)
        self.now_ms = 0.0
        self.beats = 0

    def look(self, looks: Mapping[str, Look], *, times: int = 1, every_ms: float = 1000) -> list[Hang]:
        hangs = []
        for _ in range(times):
            self.now_ms += every_ms
            if hang := self.detector.looked(looks, self.now_ms):
                hangs.append(hang)
        return hangs

    def beating(self, *, times: int, every_ms: float = 1000, **fixed: int | bool | None) -> list[Hang]:
        """A process whose loop beats, and the rest as given."""
        hangs = []
        for _ in range(times):
            self.beats += 1
            hangs += self.look({"a": looks(loop=self.beats, **fixed)}, every_ms=every_ms)
        return hangs


def looks(pid: int = 7, loop: int = 1, task: int = 0, limit: int | None = None, stopped: bool = False) -> Look:
    return Look(pid, loop, task, limit, stopped)


def test_a_process_that_beats_is_never_hung() -> None:
    assert Supervisor().beating(times=1000) == []


def test_a_loop_that_stands_still_for_longer_than_the_timeout_is_hung() -> None:
    supervisor = Supervisor()
    supervisor.beating(times=5)
    assert supervisor.look({"a": looks(loop=5)}, times=30) == []
    [hang] = supervisor.look({"a": looks(loop=5)})
    assert (hang.id, hang.pid, hang.stopped) == ("a", 7, False)
    assert "its event loop stands still" in hang.why


def test_a_stopped_process_is_hung_and_the_reason_says_why_there_are_no_stacks() -> None:
    [hang, *_] = Supervisor().look({"a": looks(stopped=True)}, times=33)
    assert hang.stopped
    assert "it is stopped, so there are no stacks" in hang.why


def test_a_call_of_user_code_may_take_as_long_as_its_component_says() -> None:
    supervisor = Supervisor()
    assert supervisor.beating(times=301, limit=300_000) == []
    [hang] = supervisor.beating(times=1, limit=300_000)
    assert "in one call of user code for 301 s" in hang.why


def test_a_call_within_its_limit_is_left_alone_however_it_lies_between_heartbeats_and_looks() -> None:
    """On a busy machine the heartbeats of a process come late, and it waits for no CPU while it sleeps."""
    for beats_ms, looks_ms in itertools.product((1000, 1300), (1000, 1010)):
        for looks_at_ms, starts_ms in itertools.product(range(0, 1000, 100), range(3000, 4400, 50)):
            found_ms = _found_ms(starts_ms, call_ms=4950, beats_ms=beats_ms, looks_ms=looks_ms, looks_at_ms=looks_at_ms)
            assert found_ms is None, (starts_ms, beats_ms, looks_ms, looks_at_ms)


def test_a_call_beyond_its_limit_is_found_within_three_seconds() -> None:
    for starts_ms in range(3000, 4500, 50):
        found_ms = _found_ms(starts_ms, call_ms=60_000)
        assert found_ms is not None
        assert 5000 < found_ms - starts_ms <= 8000


def test_code_that_keeps_the_interpreter_within_its_limit_is_left_alone_however_it_lies() -> None:
    for starts_ms in range(3000, 4500, 50):
        assert _found_ms(starts_ms, call_ms=4950, keeps=True) is None, starts_ms
        found_ms = _found_ms(starts_ms, call_ms=60_000, keeps=True)
        assert found_ms is not None
        assert 5000 < found_ms - starts_ms <= 8000


def _found_ms(
    starts_ms: int,
    *,
    call_ms: int,
    beats_ms: int = 1000,
    looks_ms: int = 1000,
    looks_at_ms: int = 0,
    keeps: bool = False,
) -> int | None:
    """When a task is found to be hung that makes progress, except in one call with a limit of 5 s; None: it is not.

    There are no heartbeats while the call keeps the interpreter.
    """
    detector = HangDetector(3000, 1000)
    loop = task = 0
    beaten_ms, looked_ms = -beats_ms, looks_at_ms - looks_ms
    progress_ms = 0
    for now_ms in range(0, 12_500, 20):
        in_call = starts_ms < now_ms < starts_ms + call_ms
        progress_ms = progress_ms if in_call else now_ms
        if now_ms >= beaten_ms + beats_ms and not (keeps and in_call):
            loop += 1
            task += progress_ms > beaten_ms
            beaten_ms = now_ms
        if now_ms >= looked_ms + looks_ms:
            looked_ms = now_ms
            if detector.looked({"a": looks(loop=loop, task=task, limit=5000)}, now_ms):
                return now_ms
    return None


def test_a_task_without_a_limit_may_take_for_ever() -> None:
    assert Supervisor().beating(times=10_000, limit=0) == []


def test_user_code_that_keeps_the_interpreter_has_the_limit_of_its_task_unless_it_is_stopped() -> None:
    silent = {"a": looks(limit=300_000)}
    assert Supervisor().look(silent, times=300) == []
    assert Supervisor().look(silent, times=303) != []
    assert Supervisor().look({"a": looks(limit=300_000, stopped=True)}, times=33) != []
    assert Supervisor().look({"a": looks(limit=0)}, times=10_000) == []


def test_a_process_that_starts_may_take_longer_for_its_first_heartbeat() -> None:
    assert Supervisor().look({"a": looks(loop=0)}, times=120) == []
    assert Supervisor().look({"a": looks(loop=0)}, times=122) != []


def test_a_new_process_under_an_old_name_begins_anew() -> None:
    supervisor = Supervisor()
    assert supervisor.look({"a": looks(pid=1)}, times=30) == []
    assert supervisor.look({"a": looks(pid=2)}, times=30) == []


def test_time_in_which_the_supervisor_was_held_up_counts_for_nobody() -> None:
    """A machine that was suspended, or so overloaded that everything is late at once."""
    supervisor = Supervisor()
    everybody = {name: looks(pid=pid) for pid, name in enumerate("abcdef", start=1)}
    assert supervisor.look(everybody, times=3) == []
    assert supervisor.look(everybody, every_ms=3_600_000) == []
    assert supervisor.look(everybody, times=100, every_ms=3000) == []


def test_a_process_that_is_given_no_cpu_is_not_hung() -> None:
    supervisor = Supervisor()
    for waited_s in range(300):
        starved = Look(7, 1, 0, None, False, starved_ms=waited_s * 950.0)
        assert supervisor.look({"a": starved}) == []
    assert supervisor.look({"a": starved}, times=32) != []


def test_several_that_are_silent_at_once_are_reported_one_at_a_time_with_a_pause() -> None:
    supervisor = Supervisor()
    everybody = {name: looks(pid=pid) for pid, name in enumerate("abc", start=1)}
    assert [hang.id for hang in supervisor.look(everybody, times=32)] == ["a"]
    assert supervisor.look({name: everybody[name] for name in "bc"}, times=7) == []
    assert [hang.id for hang in supervisor.look({name: everybody[name] for name in "bc"})] == ["b"]


def test_a_timeout_of_zero_leaves_everybody_alone() -> None:
    detector = HangDetector(0, 1000)
    assert all(detector.looked({"a": looks(stopped=True)}, now_s * 1000) is None for now_s in range(1000))
