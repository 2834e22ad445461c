"""Nexmark in the simulator: every query has the answer of plain Python, and a wrong answer shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from heronpy.api import api_constants
from heronpy.bench.nexmark import QUERIES, Answer, Options, answer, collected, events, topology, written
from heronpy.testing import Simulator

COUNT, PER_S = 2500, 25
"""100 s of event time: ten windows, and sessions that end."""
MODES = api_constants.TopologyReliabilityMode
STEPS = 5
WITHIN_S = 120


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("nexmark"), COUNT, per_s=PER_S, per_file=700)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_has_the_answer_of_plain_python_though_all_tasks_are_killed(
    query: str, files: Path, tmp_path: Path
) -> None:
    expected = answer(query, events(COUNT, per_s=PER_S))
    options = Options(sources=2, checkpoint_interval_s=0.1)
    assert expected.rows
    seen: set[Path] = set()

    def complete() -> bool:
        collected(expected, tmp_path, seen)
        return expected.complete

    with Simulator(topology(query, files, tmp_path, options)) as simulator:
        for _ in range(2):
            for _ in range(STEPS):
                simulator.step()
            simulator.checkpoint()
            for _ in range(STEPS):
                simulator.step()
            simulator.restore(kill=True)
        simulator.run(until=complete, seconds=WITHIN_S)
    collected(expected, tmp_path, seen)
    assert expected.wrong() == ""


@pytest.mark.parametrize("query", ["q1", "q4"])
@pytest.mark.parametrize("mode", [MODES.ATMOST_ONCE, MODES.ATLEAST_ONCE])
def test_only_effectively_once_asks_for_checkpoints(query: str, mode: str, files: Path, tmp_path: Path) -> None:
    built = topology(query, files, tmp_path, Options(reliability=mode)).build()
    config = {kvs.key for kvs in built.protobuf_topology.topology_config.kvs}
    assert api_constants.TOPOLOGY_RELIABILITY_MODE in config
    assert api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS not in config


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "2 rows are missing: [('a', 1)]"),
        ([("a", 1)], "1 rows are missing: [('a', 1)]"),
        ([("a", 1)] * 3, "1 rows are too many: [('a', 1)]"),
        ([("a", 1)] * 2, ""),
    ],
)
def test_rows_that_are_missing_or_too_many_show(rows: Sequence[tuple[str, int]], said: str) -> None:
    expected = Answer([("a", 1)] * 2)
    for row in rows:
        expected.add(row)
    assert expected.wrong() == said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda rows: rows[:-1], "another value than expected in 1 keys"),
        (lambda rows: rows[1:], "rows are missing in 1 keys"),
        (lambda rows: [*rows, rows[0]], "a row was made twice in 1 keys"),
        (lambda rows: [*rows, (9, 1, 1)], "another value than expected in 1 keys: [9]"),
        (lambda rows: rows[::-1], ""),
    ],
)
def test_an_average_that_skips_or_repeats_a_sale_shows(changed, said: str) -> None:  # type: ignore[no-untyped-def]
    first, second = {"kind": "bid", "auction": 1, "time": 5, "price": 10}, {"price": 30}
    auction = {"kind": "auction", "id": 1, "time": 5, "expires": 5, "category": 2}
    expected = answer("q4", [auction, first, first | second, first | {"time": 6, "price": 90}])
    rows = [(2, 1, 10), (2, 2, 30)]
    for row in changed(rows):
        expected.add(row)
    assert expected.wrong().startswith(said)
    assert bool(expected.wrong()) == bool(said)


def test_files_are_made_once_and_have_the_events_of_their_seed(tmp_path: Path) -> None:
    made = written(tmp_path, 120, seed=7)
    assert written(tmp_path, 120, seed=7) == made
    assert written(tmp_path, 120, seed=8) != made
    assert list(events(120, seed=7)) == list(events(120, seed=7)) != list(events(120, seed=8))
    assert sum(len(path.read_bytes().splitlines()) for path in made.iterdir()) == 120
    assert len(list(tmp_path.iterdir())) == 2
