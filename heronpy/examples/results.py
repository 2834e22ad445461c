"""Result files: a task's file is there completely or not at all, and a marker says that it is final."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from heronpy.errors import UsageError
from heronpy.files import replace_file

OUTPUT = "results.output"
"""Configuration key: the directory for result files, an absolute path."""


def new_output(directory: Path) -> Path:
    """Make the output directory of a topology that is about to be submitted.

    Raises:
        UsageError: it cannot be made, or has files already: a result would be a mixture of two runs.
    """
    directory = directory.absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not an empty directory: choose another --output, or remove it")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"{directory} cannot be made: {e.strerror}") from e
    return directory


def write_results(directory: Path, part: int, rows: Iterable[tuple[Any, ...]], done: Mapping[str, Any]) -> None:
    """Write `part-<n>.tsv`, one row a line, and then `part-<n>.done` with `done` as JSON."""
    name = f"part-{part:05d}"
    # The file that replaces is hidden until it is whole: readers match neither it nor a part without its marker.
    replace_file(directory / f"{name}.tsv", "".join("\t".join(map(str, row)) + "\n" for row in rows))
    replace_file(directory / f"{name}.done", json.dumps(done) + "\n")


def finished(directory: Path) -> dict[int, dict[str, Any]]:
    """What the markers say, by part."""
    return {int(p.stem.removeprefix("part-")): json.loads(p.read_text()) for p in directory.glob("part-*.done")}


def read_results(directory: Path) -> list[list[str]]:
    """The rows of all finished parts, sorted."""
    parts = [directory / f"part-{part:05d}.tsv" for part in finished(directory)]
    return sorted(line.split("\t") for path in parts for line in path.read_text().splitlines())
