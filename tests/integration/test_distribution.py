"""What users install: an sdist and a wheel, built here, in a virtual environment that knows nothing of this tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import heronpy

ROOT = Path(__file__).parents[2]
PACKAGES = ("heronpy", "heron_scheduler", "heron_tracker")
BUILD = "import sys; from hatchling import build; print(getattr(build, 'build_' + sys.argv[1])(sys.argv[2]))"
TOPOLOGY = """
from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ["n"]
    def initialize(self, config, context):
        self.n = 0
    def next_tuple(self):
        self.n += 1
        self.emit([self.n])

class Show(Bolt):
    def process(self, tup):
        if tup.values[0] == 3:
            print("three arrived", flush=True)

builder = TopologyBuilder("Numbers")
numbers = builder.add_spout("numbers", Numbers, par=1)
builder.add_bolt("show", Show, par=1, inputs={numbers: Grouping.SHUFFLE})
builder.build_and_submit()
"""


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel in it."""

    bin: Path
    home: Path
    sdist: Path
    wheel: Path

    def run(self, *command: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HERON", "VIRTUAL_ENV"))}
        program, *arguments = command
        done = subprocess.run(
            [self.bin / program, *arguments],
            env={**environment, "HERON_HOME": str(self.home / "heron")},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def built(kind: str, tree: Path, target: Path) -> Path:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", BUILD, kind, str(target)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel that pip would build of the sdist, installed without a network; only what it needs is borrowed."""
    scratch = tmp_path_factory.mktemp("distribution")
    sdist = built("sdist", ROOT, scratch)
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / "source", filter="data")
    (source,) = (scratch / "source").iterdir()
    wheel = built("wheel", source, scratch)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(scratch / "venv")], check=True, timeout=300)
    python = scratch / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=300, stdin=subprocess.DEVNULL)
    (site,) = (scratch / "venv" / "lib").glob("python*/site-packages")
    borrowed = [entry for entry in [sysconfig.get_path("purelib"), *sys.path] if entry.endswith("site-packages")]
    (site / "needs.pth").write_text("\n".join(dict.fromkeys(borrowed)))
    (scratch / "home").mkdir()
    return Installed(python.parent, scratch / "home", sdist, wheel)


def test_the_distribution_is_not_called_like_apaches_old_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "heron-engine"
    assert {"spark", "redis"} <= project["optional-dependencies"].keys()


def test_the_wheel_holds_three_typed_packages_and_the_clusters_files(installed: Installed) -> None:
    assert installed.wheel.name.startswith(f"heron_engine-{heronpy.__version__}-")
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert any(name.startswith("heronpy/conf/local/") for name in names)
    assert any(name.startswith("heron_tracker/ui/") for name in names)
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, f"heron_engine-{heronpy.__version__}.dist-info"}


def test_an_installed_wheel_is_imported_from_where_it_is(installed: Installed) -> None:
    names = ", ".join(PACKAGES)
    said = installed.run(
        "python",
        "-c",
        f"import {names}, importlib.metadata as m; print(m.version('heron-engine'))\n"
        f"for package in ({names}): print(package.__file__)",
    )
    version, *files = said.split()
    assert version == heronpy.__version__
    assert all(Path(file).is_relative_to(installed.bin.parent) for file in files)


def test_the_command_says_its_version_and_runs_a_users_topology(installed: Installed) -> None:
    assert heronpy.__version__ in installed.run("heron", "--version")
    (installed.home / "numbers.py").write_text(TOPOLOGY)
    said = installed.run("heron", "submit", "--simulator", "--seconds", "3", "local", "numbers.py", "-")
    assert "three arrived" in said
