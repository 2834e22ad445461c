"""deploy/docker/Dockerfile, built on a Debian made by debootstrap, and what runs in the image."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_images import Images, image_base, images_missing

import heronpy

pytestmark = pytest.mark.skipif(images_missing() is not None, reason=images_missing() or "")

ROOT = Path(__file__).parents[2]
BASE, IMAGE = "localhost/heron-base:test", "localhost/heron:test"


def wheels(into: Path) -> None:
    """The engine's wheel, and those of all that it needs, for the Python of the base."""
    base = image_base()
    assert base is not None
    (python,) = (path.name for path in (base / "usr/bin").glob("python3.[0-9]*") if path.name[8:].isdecimal())
    for command in (
        ["hatchling", "build", "-t", "wheel", "-d", str(into)],
        [
            *("pip", "download", "--quiet", "--only-binary=:all:", f"--python-version={python[6:]}"),
            *("-c", "constraints.txt", "-d", str(into), "heron-engine", f"--find-links={into}"),
        ],
    ):
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    base = image_base()
    assert base is not None
    # Not pytest's directory: podman takes a place of at most 50 characters.
    with tempfile.TemporaryDirectory(prefix="heron-images-") as name:
        directory = Path(name)
        context = directory / "context"
        (context / "dist").mkdir(parents=True)
        shutil.copy(ROOT / "constraints.txt", context)
        wheels(context / "dist")
        images = Images(directory)
        images.import_root(base, BASE)
        images.build(ROOT / "deploy/docker/Dockerfile", context, IMAGE, BASE=BASE, PIP_NO_INDEX="1")
        yield images


def test_the_command_and_all_its_parts_are_in_the_image(images: Images) -> None:
    done = images.run(IMAGE, "heron", "version")
    assert done.returncode == 0, done.stderr
    assert heronpy.__version__ in done.stdout
    for module in ("heronpy.container", "heron_scheduler.kubernetes.lost_pods"):
        done = images.run(IMAGE, "python3", "-m", module, "--help")
        assert done.returncode == 0, done.stderr
    done = images.run(IMAGE, "heron", "tracker", "--help")
    assert done.returncode == 0, done.stderr


def test_a_topology_runs_in_it_as_a_user_without_rights(images: Images) -> None:
    here = f"{Path(__file__).parent / 'kit_topology.py'}:/app/kit_topology.py:ro"
    script = """
        heron submit --wait local /app/kit_topology.py KitTopology &&
        heron status KitTopology && touch /opt/heron/x
        heron kill KitTopology && id -u && grep CapEff /proc/self/status
    """
    done = images.run(IMAGE, "sh", "-c", script, mounts=(here,))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "RUNNING, ready, healthy" in done.stdout
    assert "Read-only file system" in done.stderr
    assert "killed KitTopology" in done.stdout
    assert "10001" in done.stdout
    assert "CapEff:\t0000000000000000" in done.stdout


def test_a_container_without_its_bootstrap_file_says_so(images: Images) -> None:
    done = images.run(IMAGE, "python3", "-m", "heronpy.container", "/run/heron/bootstrap.json")
    assert done.returncode == 3
    assert done.stderr.strip() == "heron: /run/heron/bootstrap.json: there is no such bootstrap file"
