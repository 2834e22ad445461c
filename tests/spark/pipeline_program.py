"""A program with an archive, for tests that run it in other processes: `python pipeline_program.py DIR [marker]`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_lists import Lists

from heronpy.archive import ArchiveWriter
from heronpy.filesystem import Location
from heronpy.pipeline import Job, run
from heronpy.streamlet import Builder, Config, Sum, WindowConfig
from heronpy.streamlet.runner import Program

WINDOW = WindowConfig(15, 15)


def job_at(directory: Path, marker: Path | None = None) -> Job:
    """Word counts, and counts per window, of an archive. With a marker: stops in the middle until it is gone."""

    def held(word: str) -> tuple[str, int]:
        if marker is not None:
            marker.touch()
            while marker.exists():
                time.sleep(0.05)
        return word, 1

    builder = Builder()
    words = builder.new_source(Lists()).archive().flat_map(str.split).map(held)
    words.to_store("counts", Sum())
    words.reduce_by_key_and_window(WINDOW, lambda a, b: a + b).to_store("windows", Sum())
    config = Config()
    config.set_pipeline(directory, batch_length=10)
    return Job.of(Program("archived", config, builder.graph))


def archive(directory: Location, rows: Sequence[tuple[str, int, str]], task: str = "t-0") -> None:
    """Write (element, time in ms, id) as one commit."""

    def no_letter(where: str, row: Any, reason: str) -> None:
        raise AssertionError((where, row, reason))

    writer = ArchiveWriter(
        directory / "archive" / "events", task=task, batch_length_ms=10_000, codec="columns", dead_letter=no_letter
    )
    for value, time_ms, name in rows:
        writer.add(name, time_ms, value)
    writer.commit()
    writer.close()


if __name__ == "__main__":
    print(run(job_at(Path(sys.argv[1]), *map(Path, sys.argv[2:])), master="local[1]"))
