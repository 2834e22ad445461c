"""RTAC and sessions effectively once, in the simulator, with restores in between."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import TopologyBuilder
from heronpy.examples import exactly_once_rtac
from heronpy.examples.rtac_events import BEGIN_S, random_events, write_events
from heronpy.testing import Simulator

GAP_S = 3
LATER = [{"user_id": 1000 + n, "event": "searching", "timestamp": BEGIN_S + 3600} for n in range(50)]
"""They close all other windows."""


def simulated(events: Path, output: Path) -> Simulator:
    argv = ["RTAC", "--input", str(events), "--output", str(output), "--gap", str(GAP_S)]
    config, builder = exactly_once_rtac.program(
        exactly_once_rtac.arguments_of([*argv, "--checkpoint-interval", "3600"])
    )
    topology = TopologyBuilder("RTAC")
    builder.build(topology, config)
    return Simulator(topology)


def written(output: Path, what: str) -> list[Any]:
    return sorted(json.loads(line) for file in (output / what).glob("part-*") for line in file.read_text().splitlines())


def active(events: list[dict[str, Any]]) -> list[Any]:
    users = defaultdict(set)
    for event in events:
        users[int(event["timestamp"]), event["event"]].add(event["user_id"])
    return sorted([second, kind, len(found)] for (second, kind), found in users.items())


def sessions(events: list[dict[str, Any]]) -> list[Any]:
    rows: list[Any] = []
    last: dict[int, Any] = {}
    for event in events:  # in order of time
        user, second = event["user_id"], int(event["timestamp"])
        if user not in last or second - last[user][2] >= GAP_S:
            last[user] = [user, second, second, 0]
            rows.append(last[user])
        last[user][2] = second
        last[user][3] += 1
    return sorted(rows)


def test_rows_are_those_of_plain_python_though_all_tasks_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.streamlet._spout.EMIT_LIMIT", 5)
    events = list(random_events(600, users=40, seconds=60, seed=7))
    output = tmp_path / "out"
    write_events(tmp_path / "events.jsonl", iter([*events, *LATER]))
    with simulated(tmp_path / "events.jsonl", output) as simulator:

        def rows() -> int:
            simulator.checkpoint()
            return len(written(output, "active"))

        simulator.run(until=lambda: rows() > 20, seconds=300)
        for _ in range(3):
            simulator.step()
            simulator.restore()
        simulator.run(until=lambda: rows() >= len(active(events)), seconds=300)
    assert written(output, "active") == active(events)
    assert written(output, "sessions") == sessions(events)
