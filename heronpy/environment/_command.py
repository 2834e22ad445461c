"""Which Python runs a container."""

from __future__ import annotations

import importlib.resources
import sys
from urllib.parse import unquote, urlsplit

from heronpy.environment._ship import PYTHON
from heronpy.errors import StateError
from heronpy.runtime import Launch
from heronpy.uploader import PackageRef


def python_command(launch: Launch) -> list[str]:
    """The Python of a topology's containers, as the beginning of a command: `-m heronpy.container …` goes behind it.

    Nothing of it is secret. It is short for `image` and `venv`; for `ship` it has a program of a few kilobytes in it.

    Raises:
        StateError: the topology says that it ships its environment, and none is stored.
    """
    kind, _, path = launch.config.package.python.partition(":")
    if kind == "image":
        return ["python3"]
    if kind == "venv":
        return [f"{path.rstrip('/')}/bin/python"]
    values = launch.packages.get(PYTHON)
    if values is None:
        raise StateError(f"topology {launch.topology} has no environment stored: kill it and submit it again")
    ref = PackageRef.from_json(values)
    parts = urlsplit(ref.url)
    stored = unquote(parts.path) if parts.scheme == "file" else ref.url
    program = importlib.resources.files("heronpy.environment").joinpath("_launcher.py").read_text()
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return [version, "-c", program, stored, ref.sha256, str(ref.size), str(values["tag"])]
