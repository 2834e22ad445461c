"""What each pass of a batch run reads is what the footers of the files say, or nothing of it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.errors import HeronError
from heronpy.pipeline import Manifest, computing, duplicates, running
from tests.unit.pipeline_model import World, model


def fewer(tasks: list[Any]) -> list[Any]:
    return tasks[:-1]


def twice(tasks: list[Any]) -> list[Any]:
    return [*tasks, tasks[-1]]


@pytest.mark.parametrize("change", [fewer, twice])
@pytest.mark.parametrize("what", ["hashes", "elements", "duplicates"])
def test_rows_that_are_read_not_at_all_or_twice_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, change: Callable[[list[Any]], list[Any]]
) -> None:
    model(monkeypatch)
    world = World(tmp_path)
    world.write(*range(8), count=6, upto=7)
    with monkeypatch.context() as patched:
        if what == "hashes":
            divided = duplicates._tasks
            patched.setattr(duplicates, "_tasks", lambda *of: [of_all(divided(*of), change)])
        elif what == "elements":
            readings = running.archive_readings
            patched.setattr(running, "archive_readings", lambda *of: one_by_one(readings(*of), change))
        else:
            found = computing._duplicate_candidates

            def other(*of: Any) -> Any:
                candidates, again, damaged = found(*of)
                return candidates, one_by_one(again, change), damaged

            patched.setattr(computing, "_duplicate_candidates", other)
        with pytest.raises(HeronError, match=r"(were read|were compared): nothing was replaced, run again"):
            world.run()
    assert not len(Manifest.load(tmp_path).batches)
    world.run()
    world.check()


def of_all(tasks: list[list[Any]], change: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """The files of all tasks in one."""
    return change([file for files in tasks for file in files])


def one_by_one(tasks: list[Any], change: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Tasks of one file each."""
    return change(
        [
            replace(task, splits=(replace(split, parts=(part,)),))
            for task in tasks
            for split in task.splits
            for part in split.parts
        ]
    )
