"""Windows and timers effectively once with real processes: whatever dies, each result comes once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from counting_topology import KEYS
from windowed_topology import WINDOW, windowed

from heronpy.testing import LocalCluster, eventually_sync

GOAL = 400
WITHIN_S = 120.0


def expected() -> dict[str, Any]:
    """Of all windows that the watermark passes."""
    found: dict[str, Any] = {}
    for start in range(0, GOAL - WINDOW, WINDOW):
        numbers = range(start, start + WINDOW)
        found[f"window {start}"] = [[WINDOW, sum(numbers)]]
        for key, count in Counter(f"key-{number % KEYS}" for number in numbers).items():
            found[f"{key} until {start + WINDOW}"] = [count]
    return found


class Collected:
    """What was received at the newest checkpoint."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory

    def raise_goal(self, goal: int) -> None:
        (self.dir / "new").write_text(str(goal))
        (self.dir / "new").replace(self.dir / "goal")

    def received(self) -> dict[str, Any]:
        file = self.dir / "collected"
        return json.loads(file.read_text()) if file.exists() else {}  # type: ignore[no-any-return]

    def wait_some(self, more_than: int = 0) -> None:
        def check() -> None:
            assert len(self.received()) > more_than

        eventually_sync(check, within_s=WITHIN_S)


def test_each_window_and_each_timer_counts_once_though_their_process_is_killed(tmp_path: Path) -> None:
    collected = Collected(tmp_path)
    collected.raise_goal(GOAL // 2)  # the rest comes when there is something to lose
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(windowed("windowed", tmp_path)).wait_running()
        collected.wait_some()
        running = topology.processes()
        collected.raise_goal(GOAL)
        os.kill(next(pid for id, pid in running.items() if "_windowed_" in id), signal.SIGKILL)

        def exact() -> None:
            found = collected.received()
            assert all(len(values) == 1 for values in found.values()), "something came twice"
            assert found == expected()

        eventually_sync(exact, within_s=WITHIN_S)


@pytest.mark.long
def test_nothing_in_windows_and_timers_is_lost_or_repeated_when_the_number_of_tasks_changes(tmp_path: Path) -> None:
    goal, complete = 3000, 3000 - KEYS - WINDOW  # each task has seen a number since then
    collected = Collected(tmp_path)
    collected.raise_goal(goal // 3)
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(windowed("windowed", tmp_path)).wait_running()
        collected.wait_some()
        for number, tasks in enumerate((3, 2), 2):
            collected.raise_goal(goal * number // 3)
            topology.update(windowed=tasks)
            collected.wait_some(len(collected.received()))

        def exact() -> None:
            found = collected.received()
            for start in range(0, complete - WINDOW, WINDOW):
                parts = found.get(f"window {start}", [])
                whole = [sum(part) for part in zip(*parts, strict=True)]
                assert whole == [WINDOW, sum(range(start, start + WINDOW))], f"window {start}: {parts}"
                for key, count in Counter(f"key-{number % KEYS}" for number in range(start, start + WINDOW)).items():
                    assert sum(found.get(f"{key} until {start + WINDOW}", [])) == count

        eventually_sync(exact, within_s=WITHIN_S)
