"""The submitter's environment, to be made again on hosts that have nothing but a Python of the same version.

What is packed is what lies on this Python's path as installed: its `site-packages`, and the engine, wherever it is. A
host makes a virtual environment of its own Python (so links, paths and the interpreter are right there) and unpacks it
into that. `_launcher` does so, once per host and content. pip goes with it: it installs the requirements there. Other
packages that are installed by a link to a checkout (`pip install --editable`) are not packed: install them properly, or
name them as requirements.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path, PurePosixPath

from heronpy.uploader import pack

PYTHON = "python"
"""The place of the environment among a topology's packages."""
_OURS = ("heronpy", "heron_scheduler", "heron_tracker")
_LEFT_OUT = frozenset(("__pycache__", "setuptools", "wheel", "_distutils_hack"))


def pack_environment(archive: Path) -> Path:
    """Write this Python's environment into a package. Returns `archive`.

    Raises:
        UsageError: it is too large, or has something in it that cannot be packed.
        StateError: a file cannot be read, or the package cannot be written.
    """
    paths = sysconfig.get_paths()
    installed = dict.fromkeys(Path(paths[key]) for key in ("purelib", "platlib"))
    sources = [("", directory) for directory in installed]
    for name in _OURS:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            directory = Path(spec.origin).parent
            if installed.keys().isdisjoint(directory.parents):
                sources.append((name, directory))
    return pack(sources, archive, left_out=_is_left_out)


def own_tag() -> str:
    """What another Python must be to run this one's packages: implementation, version and platform."""
    return f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"


def _is_left_out(path: PurePosixPath) -> bool:
    # Links to checkouts, and what runs at the start of every Python: the host has neither.
    is_hook = len(path.parts) == 1 and path.suffix == ".pth"
    return path.name == "__pycache__" or path.parts[0] in _LEFT_OUT or is_hook
