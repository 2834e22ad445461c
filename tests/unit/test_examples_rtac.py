"""RTAC: its parsing, its generator, and its counts in the simulator."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from heronpy.examples import results, rtac
from heronpy.examples.rtac import event_of
from heronpy.examples.rtac_events import KINDS, random_events, write_events
from heronpy.testing import Simulator


def test_an_event_is_its_user_kind_and_whole_second():
    assert event_of(b'{"user_id": 17, "event": "following", "timestamp": 1700000000.99}') == (
        17,
        "following",
        1700000000,
    )
    assert event_of(b'{"user_id": "u", "event": "viewing", "timestamp": -0.5}') == ("u", "viewing", -1)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no json",
        b"[]",
        b"17",
        b'{"user_id": 1, "event": "x"}',
        b'{"user_id": [1], "event": "x", "timestamp": 1}',
        b'{"user_id": 1, "event": 2, "timestamp": 1}',
        b'{"user_id": 1, "event": "x", "timestamp": "1"}',
        b'{"user_id": 1, "event": "x", "timestamp": Infinity}',
        b'{"user_id": 1, "event": "x", "timestamp": NaN}',
        b"\xff\xfe\xfd",
    ],
)
def test_a_line_that_is_no_event_is_a_value_error(line):
    with pytest.raises(ValueError):  # noqa: PT011  # the type is the promise
        event_of(line)


def test_generated_events_are_the_same_for_a_seed_in_order_of_time_and_valid():
    events = list(random_events(500, users=20, seconds=5, seed=3))
    assert events == list(random_events(500, users=20, seconds=5, seed=3))
    assert events != list(random_events(500, users=20, seconds=5, seed=4))
    parsed = [event_of(json.dumps(event).encode()) for event in events]
    assert {kind for _, kind, _ in parsed} == set(KINDS)
    assert all(0 <= user < 20 for user, _, _ in parsed)
    assert len({second for _, _, second in parsed}) == 5
    assert [e["timestamp"] for e in events] == sorted(e["timestamp"] for e in events)


def test_the_different_users_of_every_second_and_event_are_counted_exactly(tmp_path: Path):
    events, path, output = list(random_events(2000, users=40, seconds=7, seed=11)), tmp_path / "e", tmp_path / "numbers"
    write_events(path, iter(events))
    with path.open("a") as f:
        f.write("this is not an event\n")
    users = defaultdict(set)
    for event in events:
        users[int(event["timestamp"]), event["event"]].add(event["user_id"])
    tasks = ["--spouts", "2", "--distributors", "2", "--user-counts", "2", "--aggregators", "2"]
    argv = ["Active", "--input", str(path), "--output", str(output), *tasks]
    with Simulator(rtac.topology(rtac.arguments_of(argv))) as simulator:
        simulator.run(until=lambda: set(results.finished(output)) == {0, 1}, seconds=120)
    rows = {(int(second), event): int(count) for second, event, count in results.read_results(output)}
    assert rows == {key: len(of) for key, of in users.items()}
