"""Another release of heronpy in the place of the one with which a topology runs: no process of it is of both."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import heronpy
from heronpy import submit
from heronpy.errors import UnavailableError
from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, find_by_environment
from heronpy.runtime import Launch
from heronpy.testing import eventually_sync

ROOT = Path(__file__).parents[2]
NEXT = "99.1.0"
BOTH = f"topology Numbers was submitted with heronpy {heronpy.__version__}, and this is heronpy {NEXT}: use "


class Installation:
    """A copy of the engine, of any release."""

    def __init__(self, root: Path) -> None:
        self.site, self.home = root / "site", root / "home"
        for source in ("heronpy", "scheduler/heron_scheduler", "tracker/heron_tracker", "deploy"):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, self.site / Path(source).name, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", self.site)
        shutil.copy(Path(__file__).with_name("numbers_topology.py"), root)

    def install(self, release: str) -> None:
        """Put another release in its place, as pip does: by new files."""
        init = self.site / "heronpy/__init__.py"
        text = re.sub('__version__ = ".*"', f'__version__ = "{release}"', init.read_text())
        (self.site / "new").write_text(text)
        os.replace(self.site / "new", init)

    def heron(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "heronpy.cli", *words],
            cwd=self.site.parent,
            env={**os.environ, "HERON_HOME": str(self.home), "PYTHONPATH": str(self.site)},
            capture_output=True,
            text=True,
            timeout=300,
        )

    @property
    def launch(self) -> Launch:
        return submit.find_by_name(self.home, "Numbers", troubled=True)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path)
    yield made
    for one in submit.listed(made.home):
        submit.kill(one.launch)


def wait_ready(launch: Launch) -> None:
    def check() -> None:
        try:
            assert submit.status(launch).ready
        except UnavailableError as e:
            raise AssertionError(str(e)) from e

    eventually_sync(check, within_s=120.0)


def wait_refused(launch: Launch, stmgr: str) -> None:
    """Kill a Stream Manager until it is executed: what a fork server had imported before may be forked once more.

    Only one that works is killed: one that is executed is to have the time to say that it refuses.
    """

    def check() -> None:
        out = (launch.log_dir(1) / f"{stmgr}.out").read_text()
        if f"heron: {BOTH}" not in out and works(launch, stmgr):
            for process, _ in find_by_environment({TOPOLOGY_ENV: launch.topology_id, PROCESS_ENV: stmgr}):
                process.send(signal.SIGKILL)
        assert f"heron: {BOTH}" in out
        assert "Traceback" not in out

    eventually_sync(check, within_s=120.0)


def works(launch: Launch, stmgr: str) -> bool:
    try:
        return any(one.location.id == stmgr and one.registered for one in submit.status(launch).stmgrs)
    except UnavailableError as e:
        raise AssertionError(str(e)) from e


def test_a_topology_is_seen_and_killed_and_nothing_of_it_is_started_by_another_release(
    installation: Installation,
) -> None:
    done = installation.heron("submit", "local", "numbers_topology.py", "Numbers")
    assert done.returncode == 0, done.stderr
    launch = installation.launch
    wait_ready(launch)
    installation.install(NEXT)
    wait_refused(launch, "stmgr-1")
    status = installation.heron("status", "Numbers")
    assert f"heronpy: {heronpy.__version__}; nothing of it is started by this heronpy, {NEXT}" in status.stdout
    assert "stmgr-1" in status.stdout
    for words in (("restart", "Numbers"), ("restart", "Numbers", "1"), ("update", "Numbers", "--containers", "3")):
        refused = installation.heron(*words)
        assert refused.returncode != 0
        assert refused.stderr.startswith(f"heron: {BOTH}"), refused.stderr
        assert refused.stderr.count("\n") == 1
    installation.install(heronpy.__version__)
    wait_ready(launch)
    installation.install(NEXT)
    killed = installation.heron("kill", "Numbers")
    assert (killed.returncode, killed.stdout) == (0, "killed Numbers\n"), killed.stderr
    assert [*find_by_environment({TOPOLOGY_ENV: launch.topology_id})] == []
    assert not launch.dir.exists()


def test_a_running_process_imports_nothing_of_another_release(installation: Installation) -> None:
    (installation.site / "late.py").write_text(
        "import sys\n"
        "from heronpy.start import imports_done\n"
        "imports_done()\n"
        "print('begun', flush=True)\n"
        "for line in sys.stdin:\n"
        "    try:\n"
        "        __import__(line.strip())\n"
        "    except ImportError as e:\n"
        "        print(e, flush=True)\n"
        "    else:\n"
        "        print('imported', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "heronpy.start", "late"],
        env={**os.environ, "PYTHONPATH": str(installation.site)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def imports(module: str) -> str:
            print(module, file=process.stdin, flush=True)
            return process.stdout.readline().strip()  # type: ignore[union-attr]

        assert process.stdout.readline() == "begun\n"
        assert imports("heronpy.errors") == "imported"
        installation.install(heronpy.__version__)  # the same once more
        assert imports("heronpy.address") == "imported"
        installation.install(NEXT)
        assert imports("heronpy.sketch") == (
            f"heronpy.sketch: heronpy {heronpy.__version__} runs here, and {NEXT} is installed now"
        )
        assert imports("colorsys") == "imported"
        assert imports("heronpy.errors") == "imported"  # it has been before
        process.stdin.close()
