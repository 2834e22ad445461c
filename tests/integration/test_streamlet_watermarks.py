"""A watermark arrives after every element that its task emitted before it: nothing becomes late on its way."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import watermark_topology
from hypothesis import given, settings
from hypothesis import strategies as st
from watermark_topology import CHECKED, CHECKERS, checked

from heronpy.testing import LocalCluster, Simulator, eventually_sync

LATENESS_MS = 40
ELEMENTS = 60_000


def times(seed: int, count: int, *, step_ms: int) -> list[int]:
    """Times that go forward, but are out of order by no more than LATENESS_MS."""
    dice = random.Random(seed)
    return [1_000_000 + n * step_ms - dice.randrange(LATENESS_MS + 1) for n in range(count)]


@pytest.fixture
def marks_everywhere() -> Iterator[None]:
    """Watermarks between any two batches, and in the middle of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heronpy.streamlet._task.WATERMARK_EVERY_MS", 0)
        patch.setattr("heronpy.streamlet._spout.CHORES_EVERY_MS", 0)
        patch.setattr("heronpy.streamlet._spout.MARKS_PER_LIMIT", 1 << 18)  # a watermark after every few records
        yield


@pytest.mark.usefixtures("marks_everywhere")
@given(
    seed=st.integers(0, 1 << 32),
    count=st.integers(1, 600),
    at_a_time=st.sampled_from([1, 2, 7, 100]),
    tasks=st.integers(1, 3),
    acked=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_no_element_is_overtaken_by_a_watermark_of_its_task_in_the_simulator(
    seed: int, count: int, at_a_time: int, tasks: int, acked: bool
) -> None:
    script = times(seed, count, step_ms=3)
    topology = checked(script, lateness_ms=LATENESS_MS, at_a_time=at_a_time, tasks=tasks, acked=acked)
    with Simulator(topology) as simulator:
        seen: Counter[str] = Counter()
        deadline = time.monotonic() + 300

        def complete() -> bool:
            seen.clear()
            for checker in simulator.component("checker"):
                seen.update(checker.counts)
            return all(seen[name] == count for name in CHECKED) or time.monotonic() > deadline

        simulator.run(until=complete)
        assert {name: seen[name] for name in CHECKED} == dict.fromkeys(CHECKED, count)
        assert seen["overtaken"] == 0, [checker.worst for checker in simulator.component("checker")]
        assert seen["watermarks"] > 0


def totals(directory: Path) -> tuple[Counter[str], list[Any]]:
    records = [json.loads(path.read_text()) for path in directory.glob("[!.]*")]
    worst = [record.pop("worst") for record in records]
    return sum((Counter(record) for record in records), Counter()), worst


@pytest.mark.long
@pytest.mark.parametrize("acked", [False, True], ids=["at most once", "at least once"])
def test_no_element_is_overtaken_between_containers_under_load(tmp_path: Path, acked: bool) -> None:
    # As many as the tasks can: the queues between them are full, and watermarks come from four tasks at once.
    script = times(7, ELEMENTS, step_ms=1)
    topology = checked(script, lateness_ms=LATENESS_MS, tasks=2, records=str(tmp_path), acked=acked)
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        running = cluster.submit(topology, files=[watermark_topology.__file__]).wait_running()
        assert len({i.container for i in running.status().instances}) == 2

        def complete() -> None:
            seen, _ = totals(tmp_path)
            assert all(seen[name] >= ELEMENTS for name in CHECKED), seen

        eventually_sync(complete)
    seen, worst = totals(tmp_path)
    print(f"\n{dict(seen)}")
    assert {name: seen[name] for name in CHECKED} == dict.fromkeys(CHECKED, ELEMENTS), "nothing was sent twice"
    assert seen["overtaken"] == 0, worst
    assert seen["watermarks"] > 4 * CHECKERS
