"""A topology whose package and requirements are stored when it is submitted, and gone when it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import heron_scheduler
import pytest

from heronpy import loader, submit
from heronpy.environment import install
from heronpy.errors import UnavailableError, UsageError
from heronpy.runtime import Launch
from heronpy.testing import eventually_sync

PROGRAM = """
import heron_test_dep
from heronpy.api.bolt import Bolt
from heronpy.api.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import Topology

class Numbers(Spout):
    outputs = ["number"]
    def initialize(self, config, context):
        self.next = 0
    def next_tuple(self):
        self.emit([self.next])
        self.next += heron_test_dep.STEP

class Sum(Bolt):
    def initialize(self, config, context):
        self.sum = 0
    def process(self, tup):
        self.sum += tup.values[0]

class Sums(Topology):
    numbers = Numbers.spec()
    sum = Sum.spec(inputs={numbers: Grouping.SHUFFLE})
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that needs a module which only its requirements bring to the instances."""
    index = tmp_path / "index"
    index.mkdir()
    about = "heron_test_dep-1.0.dist-info"
    with zipfile.ZipFile(index / "heron_test_dep-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("heron_test_dep.py", "STEP = 2\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: heron_test_dep\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    # The submitter has it installed: not a module of its own, which would go with the topology.
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "heron_test_dep.py").write_text("STEP = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(installed))
    (tmp_path / "requirements.txt").write_text("heron-test-dep\n")
    (tmp_path / "sums.py").write_text(PROGRAM)
    return tmp_path / "sums.py"


def stored(tmp_path: Path) -> list[str]:
    return sorted(
        str(path.relative_to(tmp_path / "store")) for path in (tmp_path / "store").rglob("*") if path.is_file()
    )


def test_a_topology_runs_with_its_requirements_and_leaves_no_package(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = loader.define(program, "Sums")
    monkeypatch.delenv("PYTHONPATH")  # from here on there are only its requirements
    keys = {"heron.package.requirements": str(tmp_path / "requirements.txt"), "heron.uploader.url": f"{tmp_path}/store"}
    home = tmp_path / "home"
    launch = submit.submit(definition, home=home, properties=keys)
    try:
        package, use = stored(tmp_path)
        assert package.removesuffix(".0.tar.gz") == launch.packages["package"]["sha256"]
        assert use == f"uses/{package}~{launch.topology_id}"

        def runs() -> None:
            try:
                assert submit.status(launch).ready
            except UnavailableError as e:
                raise AssertionError(str(e)) from e

        eventually_sync(runs)
    finally:
        submit.kill(launch)
    assert stored(tmp_path) == []


def test_another_host_makes_the_same_directory(program: Path, tmp_path: Path) -> None:
    keys = {"heron.package.requirements": str(tmp_path / "requirements.txt"), "heron.uploader.url": f"{tmp_path}/store"}
    launch = submit.submit(loader.define(program, "Sums"), home=tmp_path / "home", properties=keys)
    try:
        there = Launch.decode(launch.encode(), tmp_path / "there")
        there.dir.mkdir()
        install(there)
        assert (there.dir / "package" / "sums.py").read_text() == PROGRAM
        assert (there.dir / "requirements" / "site-packages" / "heron_test_dep.py").read_text() == "STEP = 2\n"
    finally:
        submit.kill(launch)


def test_a_submission_that_fails_leaves_no_package(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = loader.define(program, "Sums")
    (tmp_path / "requirements.txt").write_text("heron-nowhere\n")
    keys = {"heron.package.requirements": str(tmp_path / "requirements.txt"), "heron.uploader.url": f"{tmp_path}/store"}
    with pytest.raises(UsageError, match="heron-nowhere"):
        submit.submit(definition, home=tmp_path / "home", properties=keys)
    at_start: list[list[str]] = []

    def refused(*_: object) -> None:
        at_start.append(stored(tmp_path))
        raise UnavailableError("the cluster refuses")

    monkeypatch.setattr(heron_scheduler, "start", refused)
    with pytest.raises(UnavailableError, match="refuses"):
        submit.submit(definition, home=tmp_path / "home", properties={"heron.uploader.url": f"{tmp_path}/store"})
    assert [len(names) for names in at_start] == [2]
    assert stored(tmp_path) == []
    assert submit.running(tmp_path / "home") == []


def test_a_submitter_that_dies_leaves_no_package_after_the_next_kill(program: Path, tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from heronpy import loader, submit
from heronpy.uploader import StoredUploader
store = StoredUploader.store
def dies(*args, **more):
    store(*args, **more)
    os.kill(os.getpid(), signal.SIGKILL)
StoredUploader.store = dies
home = Path(sys.argv[1])
submit.submit(loader.define(sys.argv[2], "Sums"), home=home, properties={"heron.uploader.url": sys.argv[3]})
"""
    home = tmp_path / "home"
    arguments = [str(home), str(program), str(tmp_path / "store")]
    assert subprocess.run([sys.executable, "-c", code, *arguments]).returncode == -signal.SIGKILL
    assert len(stored(tmp_path)) == 2
    (found,) = submit.listed(home)
    assert found.trouble
    submit.kill(found.launch)
    assert stored(tmp_path) == []
    assert submit.listed(home) == []
