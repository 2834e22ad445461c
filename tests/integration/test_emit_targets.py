"""What emit says is what happens: groupings, task ids, acks and ticks in two containers, with real processes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path

import pytest
from failures_topology import groupings

from heronpy.testing import LocalCluster, eventually_sync

COUNT = 200
KEYS = {
    "heron.metrics.export.interval.ms": 500,
    "heron.executor.stop.timeout.ms": 2000,
    "heron.instance.emit.batch.time.ms": 0,
}


@pytest.mark.long
def test_a_tuple_goes_where_emit_said_and_local_stays_local(tmp_path: Path) -> None:
    def notes(kind: str) -> list[list[str]]:
        path = tmp_path / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(kind)]

    with LocalCluster(KEYS) as cluster:
        topology = cluster.submit(groupings(tmp_path, count=COUNT)).wait_running()

        def all_acked() -> None:
            acked = notes("acked")
            assert len(acked) == 2 * COUNT, len(acked)

        eventually_sync(all_acked)
        container = {i.task_id: i.container for i in topology.status().instances}
        component = {i.task_id: i.component for i in topology.status().instances}
        ticks_before = len(notes("tick"))
        eventually_sync(lambda: _more(len(notes("tick")), ticks_before + 10 * 12))  # now idle

    sent = {(int(n[0]), int(n[1])): sorted(map(int, n[2:])) for n in notes("sent")}
    got: dict[tuple[int, int], list[int]] = defaultdict(list)
    for source, number, task in (map(int, n) for n in notes("got")):
        got[source, number].append(task)
    assert {key: sorted(tasks) for key, tasks in got.items()} == sent

    by_key: dict[int, set[int]] = defaultdict(set)
    for (source, number), tasks in sent.items():
        names = [component[task] for task in tasks]
        assert sorted(names) == ["all", "all", "direct", "fields", "local", "lowest", "shuffle"]
        for task, name in zip(tasks, names, strict=True):
            if name == "local":
                assert container[task] == container[source]
            if name == "lowest":
                assert task == min(t for t, c in component.items() if c == "lowest")
            if name == "fields":
                by_key[number].add(task)
    assert all(len(tasks) == 1 for tasks in by_key.values())
    assert len({task for tasks in by_key.values() for task in tasks}) == 2

    ticks: dict[int, list[float]] = defaultdict(list)
    for task, at in notes("tick"):
        ticks[int(task)].append(float(at))
    assert len(ticks) == 12
    for times in ticks.values():
        gaps = sorted(b - a for a, b in itertools.pairwise(times))
        assert gaps[len(gaps) // 2] > 0.08, "the median: after a late tick the next comes sooner"


def _more(found: int, least: int) -> None:
    assert found >= least
