"""A program that was submitted is known to `heron pipeline` by its name."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from heron_command import heron_command

from heronpy.pipeline.record import Record, read_record
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import find_by_name

PROGRAM = """
import sys
from heronpy.connectors import ListSource
from heronpy.streamlet import Builder, Config, Runner, Sum

if __name__ == "__main__":
    builder = Builder()
    words = builder.new_source(ListSource(["a", "b", "a"], times=[1.0, 2.0, 3.0])).archive()
    words.map(lambda word: (word, 1)).to_store("counts", Sum())
    config = Config()
    config.set_pipeline(sys.argv[2])
    Runner().run(sys.argv[1], config, builder)
"""


def heron(place: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return heron_command(*args, home=place / "home", cwd=place)


def reported(home: Path) -> Record | None:
    """What the state manager has of the batch side, and of this very topology."""
    launch = find_by_name(home, "Words")
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        value = state.get(Kind.PIPELINES, "Words")
    record = None if value is None else read_record(value)
    return record if record is not None and record.topology_id == launch.topology_id else None


def test_the_status_of_a_submitted_job_is_asked_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(PROGRAM)
    submitted = heron(tmp_path, "submit", "local", "words.py", "-", "Words", "job")
    try:
        assert submitted.returncode == 0, submitted.stderr
        status = heron(tmp_path, "pipeline", "status", "Words")
        assert status.returncode == 0, status.stderr
        assert "counts" in status.stdout
        assert heron(tmp_path, "pipeline", "reconcile", "Words").returncode == 0
        record = reported(tmp_path / "home")
        assert record is not None, "the Tracker is told by whoever changes or compares the batch side"
        assert [one.archive for one in record.archives] == ["events"]
        assert record.reconciled is not None
        assert [one.view for one in record.reconciled.views] == ["counts"]
    finally:
        heron(tmp_path, "kill", "local", "Words")
