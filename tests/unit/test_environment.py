"""Which Python runs a container, and what a launch file says of packages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heronpy.config import EngineConfig
from heronpy.environment import python_command
from heronpy.errors import ConfigError, StateError
from heronpy.runtime import Launch, StatemgrSpec


def launch_with(directory: Path, **keys: Any) -> Launch:
    return Launch(
        topology="words",
        topology_id="words-1",
        cluster="local",
        role="ada",
        environ="default",
        statemgr=StatemgrSpec(),
        dir=directory,
        config=EngineConfig.from_keys(keys),
    )


@pytest.mark.parametrize("value", ["", "venv", "venv:relative", "docker", "image:x"])
def test_other_pythons_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"heron\.package\.python"):
        EngineConfig.from_keys({"heron.package.python": value})


def test_what_ships_needs_a_directory_or_s3_to_ship_through() -> None:
    for url in ("", "hdfs://host/heron"):
        with pytest.raises(ConfigError, match=r"heron\.uploader\.url must be a directory .*, or s3://"):
            EngineConfig.from_keys({"heron.package.python": "ship", "heron.uploader.url": url})
    for url in ("/srv/heron", "s3://bucket/heron"):
        EngineConfig.from_keys({"heron.package.python": "ship", "heron.uploader.url": url})


def test_the_python_of_a_container_is_a_command(tmp_path: Path) -> None:
    assert python_command(launch_with(tmp_path)) == ["python3"]
    venv = launch_with(tmp_path, **{"heron.package.python": "venv:/opt/heron/"})
    assert python_command(venv) == ["/opt/heron/bin/python"]
    ship = launch_with(tmp_path, **{"heron.package.python": "ship", "heron.uploader.url": str(tmp_path)})
    with pytest.raises(StateError, match="submit it again"):
        python_command(ship)


def test_packages_survive_the_launch_file(tmp_path: Path) -> None:
    packages = {"package": {"url": "/store/x.tar.gz", "sha256": "0" * 64, "bytes": 3}}
    launch = replace(launch_with(tmp_path / "words"), packages=packages)
    launch.save()
    assert Launch.load(launch.dir).packages == packages
    values = json.loads((launch.dir / "launch.json").read_text())
    (launch.dir / "launch.json").write_text(json.dumps({**values, "packages": ["x"]}))
    with pytest.raises(StateError, match="damaged"):
        Launch.load(launch.dir)
