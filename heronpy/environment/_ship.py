"""The submitter's environment, to be made again on hosts that have nothing but a Python of the same version.

What is packed is what lies on this Python's path as installed: its `site-packages`, and the engine, wherever it is. A
host makes a virtual environment of its own Python (so links, paths and the interpreter are right there) and unpacks it
into that. `_launcher` does so, once per host and content. pip goes with it: it installs the requirements there. Other
packages that are installed by a link to a checkout (`pip install --editable`) are not packed: install them properly, or
name them as requirements.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import secrets
import sys
import sysconfig
import time
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath

from heronpy.errors import StateError, UsageError
from heronpy.uploader import pack

PYTHON = "python"
"""The place of the environment among a topology's packages."""
_OURS = ("heronpy", "heron_scheduler", "heron_tracker")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENGINE = "heron-engine"
_DIGITS = 16
_KEPT = 4
"""Packages of distributions that stay in the cache."""
_PACKING_S_MAX = 86_400.0
"""A package that was begun longer ago is none any more: its process has died."""
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


def pack_distributions(cache: Path, modules: Iterable[str], *, without: Collection[str] = ()) -> Path:
    """A package of what some modules are installed with, and of what that requires in turn.

    Extras are not followed: a module that the code imports is named itself. The package is named by what is in it, and
    made if it is not there; of older ones a few stay.

    Args:
        cache: the directory for such packages, of this user alone; made if missing.
        modules: top-level modules; those that are not installed are passed over.
        without: distributions to leave out, with what only they require.

    Raises:
        UsageError: it is too large, or has something in it that cannot be packed.
        StateError: a file cannot be read, or the package cannot be written.
    """
    found = _required_by(modules, without)
    records = sorted(f"{one.name}=={one.version} {one.read_text('RECORD')}" for one in found)
    digest = hashlib.sha256("\n".join((own_tag(), *records)).encode()).hexdigest()[:_DIGITS]
    archive = cache / f"heron-packages-{digest}.tar.gz"
    if archive.exists():
        os.utime(archive)
        return archive
    tops = {top for one in found for top in _tops(one)}
    scratch = archive.with_name(f".{archive.name}.{secrets.token_hex(8)}")
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        for dead in cache.glob(".heron-packages-*"):
            if 0 < _used_s(dead) < time.time() - _PACKING_S_MAX:
                dead.unlink(missing_ok=True)
        pack(
            [("", place) for place in sorted({Path(str(one.locate_file(""))) for one in found})],
            scratch,
            left_out=lambda path: _is_left_out(path) or path.parts[0] not in tops,
        )
        scratch.rename(archive)
        for old in sorted(cache.glob("heron-packages-*.tar.gz"), key=_used_s)[:-_KEPT]:
            old.unlink(missing_ok=True)
    except OSError as e:
        raise StateError(f"{archive} cannot be written: {e.strerror or e}") from e
    finally:
        scratch.unlink(missing_ok=True)
    return archive


def _tops(one: importlib.metadata.Distribution) -> set[str]:
    """The names in `site-packages` that are a distribution's.

    Raises:
        UsageError: it does not say so, as what was not installed by pip.
    """
    if one.files is not None:
        return {path.parts[0] for path in one.files}
    modules = (one.read_text("top_level.txt") or "").split()
    if not modules:
        raise UsageError(f"{one.name} cannot be packed: its installation has no list of its files; install it with pip")
    place = Path(str(one.locate_file("")))
    return {path.name for path in place.iterdir() if path.name.partition(".")[0] in modules}


def _used_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has removed it
        return 0.0


def _required_by(modules: Iterable[str], without: Collection[str]) -> list[importlib.metadata.Distribution]:
    installed = importlib.metadata.packages_distributions()
    waiting = [name for module in modules for name in installed.get(module, ())]
    seen = {_normal(name) for name in (*without, _ENGINE)}
    found = []
    while waiting:
        name = _normal(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        try:
            one = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on other platforms, or of other versions of Python
        found.append(one)
        required = (text for text in one.requires or () if "extra ==" not in text)
        waiting += [match[0] for text in required if (match := _NAME.match(text))]
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def own_tag() -> str:
    """What another Python must be to run this one's packages: implementation, version and platform."""
    return f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"


def _is_left_out(path: PurePosixPath) -> bool:
    # Links to checkouts, and what runs at the start of every Python: the host has neither.
    is_hook = len(path.parts) == 1 and path.suffix == ".pth"
    return path.name == "__pycache__" or path.parts[0] in _LEFT_OUT or is_hook
