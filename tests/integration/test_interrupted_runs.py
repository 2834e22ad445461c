"""A test run that is interrupted or killed leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import reaper

from heronpy.host import TOPOLOGY_ENV, HostProcess, find_by_environment
from heronpy.testing import eventually_sync

CONFTEST = """
import sys
sys.path[:0] = [{tests!r}, {tests!r} + "/integration"]
import reaper
def pytest_configure(config):
    reaper.start()
"""
TEST = """
import json, subprocess, time
from pathlib import Path
from numbers_topology import Small
from heronpy import loader, submit

def test_that_is_interrupted():
    launch = submit.submit(loader.Definition.of(Small), home=Path({home!r}))
    stray = subprocess.Popen(["sleep", "600"], env={{}}, start_new_session=True)  # without the mark of the run
    Path({up!r}).write_text(json.dumps([launch.topology_id, stray.pid]))
    time.sleep(600)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_an_interrupted_run_with_workers_leaves_no_process(tmp_path: Path, signum: int) -> None:
    up = tmp_path / "up"
    (tmp_path / "conftest.py").write_text(CONFTEST.format(tests=str(Path(reaper.__file__).parent)))
    (tmp_path / "test_nested.py").write_text(TEST.format(home=str(tmp_path / "home"), up=str(up)))
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    topology_id, stray_pid = eventually_sync(lambda: _read(up))
    mine = {TOPOLOGY_ENV: topology_id}
    stray = HostProcess.of(stray_pid)
    assert stray is not None
    assert list(find_by_environment(mine))
    os.kill(run.pid, signum)
    run.wait(300)

    def gone() -> None:
        assert [env for _, env in find_by_environment(mine)] == []
        assert not stray.alive

    eventually_sync(gone)


def _read(path: Path) -> tuple[str, int]:
    assert path.exists()
    assert path.read_text().endswith("]")
    topology_id, pid = json.loads(path.read_text())
    return topology_id, pid
