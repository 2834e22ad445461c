"""Other engines beside ours, with a stand-in for them: what is measured, and that nothing of it is left."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from heronpy.bench.others import running
from heronpy.errors import UnavailableError

COUNTING = """
import os, subprocess, sys, time
from pathlib import Path
directory = Path(sys.argv[3])
if len(sys.argv) == 4:  # as engines do, it has another process do the work
    sys.exit(subprocess.call([sys.executable, *sys.argv, "worker"]))
for number in range(1, 10**9):
    until_s = time.process_time() + 0.02
    while time.process_time() < until_s:
        pass
    (directory / "new").write_text(str(number * 100))
    os.replace(directory / "new", directory / "count")
"""


def measured(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    script = tmp_path / "job.py"
    script.write_text(job)
    monkeypatch.setitem(running.JOBS, "stand-in", script)
    return running.words_per_core_s("stand-in", Path(sys.executable), keys=1, interval_s=1, warm_up_s=0.01, seconds=2)


def test_words_are_counted_and_all_its_processes_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(COUNTING, tmp_path, monkeypatch) > 0
    assert [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())] == []


def test_an_engine_that_ends_by_itself_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match="no such module"):
        measured("import sys; sys.exit('no such module')", tmp_path, monkeypatch)


def test_the_jobs_of_other_engines_are_python() -> None:
    for job in running.JOBS.values():
        compile(job.read_text(), str(job), "exec")
        assert "import heronpy" not in job.read_text()
