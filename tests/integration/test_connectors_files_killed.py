"""A process that reads files is killed: its successors go on where it was, and no line is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from heronpy.connectors import TextFile
from heronpy.connectors import lines as _lines
from heronpy.runtime import PARENT_ENV
from heronpy.testing import eventually_sync
from heronpy.testing.connectors_kit import drain, open_source

_READER = """
import sys, time
from pathlib import Path
from heronpy.connectors import TextFile, lines as _lines
from heronpy.runtime import die_with_parent
from heronpy.testing.connectors_kit import open_source

die_with_parent()
_lines.STREAM_PART_BYTES = 100_000
directory = Path(sys.argv[1])
reader = open_source(TextFile(directory / "*.txt"), task=int(sys.argv[2]), of=2, directory=directory)
with (directory / ("done" + sys.argv[2])).open("a") as done:
    count = 0
    while not reader.ended:
        records = reader.read(50 if count < 25_000 else 0)  # half of its share: the rest is for its successors
        count += len(records)
        for record in records:
            done.write(record.value + "\\n")
        done.flush()
        reader.ack(records)
        time.sleep(0.005)
"""


def test_no_line_is_lost_when_readers_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lines, "STREAM_PART_BYTES", 100_000)
    lines = [f"line {n}" for n in range(100_000)]
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("".join(line + "\n" for line in lines[number::4]))
    environment = {**os.environ, PARENT_ENV: str(os.getpid())}
    processes = [
        subprocess.Popen([sys.executable, "-c", _READER, str(tmp_path), str(task)], env=environment)
        for task in range(2)
    ]
    try:

        def positions_saved() -> None:
            assert len(list((tmp_path / "positions" / "stage").glob("?.json"))) == 2

        eventually_sync(positions_saved)
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait(300)
    done = [line for task in range(2) for line in (tmp_path / f"done{task}").read_text().splitlines()]
    source = TextFile(tmp_path / "*.txt")
    successors = [open_source(source, task=task, of=3, directory=tmp_path) for task in range(3)]
    rest = [record.value for record in drain(*successors, limit=1000)]
    counts = Counter(done + rest)
    assert counts.keys() == set(lines)
    assert len(rest) < len(lines)  # what was acked long before is not read again
    assert 0 < len(done) < len(lines)
