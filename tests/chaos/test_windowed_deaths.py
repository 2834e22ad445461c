"""Windows and timers effectively once with real processes: whatever dies, each result comes once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

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


def test_each_window_and_each_timer_counts_once_though_their_process_is_killed(tmp_path: Path) -> None:
    collected = tmp_path / "collected"

    def raise_goal(goal: int) -> None:
        (tmp_path / "new").write_text(str(goal))
        (tmp_path / "new").replace(tmp_path / "goal")

    def received() -> dict[str, Any]:
        return json.loads(collected.read_text()) if collected.exists() else {}  # type: ignore[no-any-return]

    raise_goal(GOAL // 2)  # the rest comes when there is something to lose
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(windowed("windowed", tmp_path)).wait_running(180)

        def some() -> None:
            assert received()

        eventually_sync(some, within_s=WITHIN_S)
        running = topology.processes()
        raise_goal(GOAL)
        os.kill(next(pid for id, pid in running.items() if "_windowed_" in id), signal.SIGKILL)

        def exact() -> None:
            found = received()
            assert all(len(values) == 1 for values in found.values()), "something came twice"
            assert found == expected()

        eventually_sync(exact, within_s=WITHIN_S)
