"""How far an archive is complete: each writing task records its watermark, of each run of the topology its own.

A task's file is `_progress/<run>@<task>.json`, there from the moment that its writer opens. A run counts when all of
its tasks have recorded something; then all of its elements before the least of their watermarks are there. Watermarks
of earlier runs stay true, so the archive is complete before the greatest of the runs' leasts. The newest run alone
says that there will be nothing more.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import defaultdict
from typing import Any

from heronpy.archive.files import write_json
from heronpy.errors import HeronError
from heronpy.filesystem import Location, files_of

NOTHING = -(2**63)
"""Before this time an archive is complete whose writers have said nothing."""
_FOLDER = "_progress"


class Progress:
    """What one task of a run records."""

    def __init__(self, directory: Location, task: str, run: str, tasks: int) -> None:
        self._directory = directory
        self._path = directory / _FOLDER / f"{run}@{task}.json"
        self._tasks = tasks
        self._before_ms: int | None = None
        self._written: tuple[int | None, bool] | None = None
        try:
            content = json.loads(files_of(self._path).read(self._path))  # of the process that this one replaces
            self._began_ms, self._before_ms = content["began_ms"], content["before_ms"]
            self._written = (self._before_ms, content["ended"])
        except (FileNotFoundError, ValueError, KeyError):
            self._began_ms = max(time.time_ns() // 1_000_000, _newest_ms(directory, but_for=run) + 1)
        # A reader must know from the start that there is a writer: a run before may have ended with "that is all".
        self._write((self._before_ms, False))

    def record(self, watermark_ms: int | None) -> None:
        """Write a watermark, if it is another than before. It never goes back."""
        if watermark_ms is not None:
            self._before_ms = watermark_ms if self._before_ms is None else max(self._before_ms, watermark_ms)
        self._write((self._before_ms, watermark_ms is None))

    def _write(self, state: tuple[int | None, bool]) -> None:
        if state == self._written:
            return
        content = {"before_ms": state[0], "ended": state[1], "tasks": self._tasks, "began_ms": self._began_ms}
        content["announces"] = True  # what it writes: see `_announcements`
        try:
            write_json(self._directory, self._path, content)
        except OSError as error:
            raise HeronError(f"cannot write {self._path}: {error.strerror or error}") from error
        self._written = state


def complete_before_ms(directory: Location) -> int | None:
    """Before which time every element is in the archive; None: all are, and no more will come.

    Raises:
        HeronError: a file cannot be read.
    """
    return completeness(directory)[0]


def completeness(directory: Location) -> tuple[int | None, bool]:
    """The same, and whether the writers of the newest run announce what they write.

    Raises:
        HeronError: a file cannot be read.
    """
    runs = _runs(directory)
    if not runs:
        return NOTHING, False
    newest = max(runs.values(), key=lambda tasks: max(task["began_ms"] for task in tasks))
    announces = all(task.get("announces") is True for task in newest)
    if _all_there(newest) and all(task["ended"] for task in newest):
        return None, announces
    return max(_least(tasks) for tasks in runs.values()), announces


def _newest_ms(directory: Location, *, but_for: str) -> int:
    """When the newest of other runs began, which may be later than now: clocks are set back."""
    began = [0]
    with contextlib.suppress(HeronError):  # who asks how far the archive is complete is told
        for run, tasks in _runs(directory).items():
            began += [int(task["began_ms"]) for task in tasks if run != but_for]
    return max(began)


def _runs(directory: Location) -> dict[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    files = files_of(directory)
    try:
        listed = files.listed(directory / _FOLDER)
    except OSError as error:
        raise HeronError(f"{directory / _FOLDER} cannot be listed: {error}") from error
    for path in [file.path for file in listed if file.path.suffix == ".json"]:
        try:
            runs[path.name.partition("@")[0]].append(_task(json.loads(files.read(path))))
        except (OSError, ValueError, RecursionError) as error:
            raise HeronError(f"{path} cannot be read: {error}") from error
    return runs


def _task(record: Any) -> dict[str, Any]:
    if not isinstance(record, dict) or not all(type(record.get(name)) is int for name in ("tasks", "began_ms")):
        raise ValueError("it lacks tasks or began_ms")
    if not isinstance(record.get("ended"), bool) or type(record.get("before_ms", "")) not in (int, type(None)):
        raise ValueError("it lacks ended or before_ms")
    return record


def _all_there(tasks: list[dict[str, Any]]) -> bool:
    return len(tasks) >= max(int(task["tasks"]) for task in tasks)


def _least(tasks: list[dict[str, Any]]) -> int:
    if not _all_there(tasks):
        return NOTHING
    # A task that has ended holds up no other: the others say how far the run is.
    going = [task for task in tasks if not task["ended"]] or tasks
    return min(NOTHING if task["before_ms"] is None else task["before_ms"] for task in going)
