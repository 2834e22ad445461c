"""What is measured of real processes, with tiny inputs: it runs, and what is not exact shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heronpy.bench.rows.counting import wrong_counts
from heronpy.bench.rows.sinks import changed_outputs


def row(*arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "heronpy.bench.rows", *arguments, "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_output_that_is_committed_an_hour_later_is_the_same_byte_for_byte() -> None:
    found = dict(changed_outputs())
    assert {"JsonLinesSink", "TextSink", "CsvSink", "RedisStreamSink"} <= found.keys()
    assert [name for name, changed in found.items() if changed is True] == []


def test_output_that_is_prepared_and_forgotten_shows() -> None:
    found = dict(changed_outputs(lose=True, without=["KafkaSink"]))
    assert [name for name, changed in found.items() if changed is False] == []


def reported(directory: Path, emitted: int, *numbers: dict[int, int]) -> None:
    (directory / "source-0.7.report").write_text(json.dumps({"emitted": emitted}))
    for index, each in enumerate(numbers):
        (directory / f"count-{index}.7.report").write_text(json.dumps({"numbers": list(each.items())}))


@pytest.mark.parametrize(
    ("emitted", "numbers", "exact"),
    [
        (25, [{2: 2, 3: 5}, {2: 3}], True),
        (20, [{2: 10}, {}], True),
        (7, [{1: 4}, {1: 3}], True),
        (25, [{2: 3, 3: 4}, {2: 3}], False),  # one is missing
        (25, [{2: 1, 3: 6}, {2: 3}], False),  # one is counted twice
        (25, [{2: 2, 3: 5}, {2: 4}], False),  # a key is in two tasks
        (25, [{1: 1, 2: 1, 3: 5}, {2: 2, 3: 1}], False),  # one is counted for another
    ],
)
def test_a_count_that_is_not_exact_shows(
    tmp_path: Path, emitted: int, numbers: list[dict[int, int]], exact: bool
) -> None:
    reported(tmp_path, emitted, *numbers)
    assert (wrong_counts(tmp_path, 7, keys=10, tasks=2) == "") == exact


@pytest.mark.long
def test_recovery_and_other_numbers_of_tasks_are_exact() -> None:
    tiny = ("--rate", "1000", "--interval", "1")
    found = row("recovery", "--keys", "1000", "--kills", "2", *tiny)
    found += row("rescale", "--gb", "0.001", "--numbers", "1,2", *tiny)
    assert [each["figure"] for each in found if each["target"] == "exact"] == ["exact", "exact"]


@pytest.mark.long
def test_checkpoints_complete_though_a_bolt_is_slow() -> None:
    assert row("slow", "--checkpoints", "3", "--payload", "1000")[0]["figure"] == "3 of 3"


@pytest.mark.long
def test_counts_are_exact_with_a_budget_of_memory() -> None:
    pytest.importorskip("lmdb", reason="lmdb is not installed")
    tiny = ("--mb", "1", "--times", "3", "--seconds", "1", "--rate", "2000", "--interval", "1")
    found = {each["what"]: each["figure"] for each in row("memory", *tiny)}
    assert (found["counts of all keys"], found["state, by the budget"]) == ("exact", "3 × 1 MiB")
    assert float(found["RSS of the task with hardly any, MiB"]) > 10


@pytest.mark.long
def test_each_key_has_one_session_though_its_task_is_killed() -> None:
    tiny = ("--keys", "10000", "--rate", "2000", "--gap", "500", "--seconds", "1", "--kills", "1", "--interval", "0.5")
    found = {each["what"]: each["figure"] for each in row("sessions", *tiny)}
    assert found["counts of all keys"] == "exact"
    assert {"RSS of the task, MiB", "checkpoints, MiB", "kill -9 to first output, s"} <= found.keys()
