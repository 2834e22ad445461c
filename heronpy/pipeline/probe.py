"""What the Python of an executor can do. Runs there before anything of heronpy does: standard library only.

It is pickled by value, with what it refers to.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Seen(NamedTuple):
    """One executor's Python."""

    host: str
    directory: str
    """Where it runs; no other one of the host runs there."""
    python: str
    """Its path there."""
    missing: list[str]
    """Modules that cannot be imported, each with the reason."""
    versions: dict[str, str]
    """Of those that can."""


def look(needed: tuple[str, ...], ours: str, rows: Iterable[object]) -> Iterator[tuple[object, ...]]:
    """Import what tasks need.

    Args:
        needed: names of packages.
        ours: a module of heronpy that imports what tasks do; looked at if nothing of `needed` is missing.
        rows: of the partition; not looked at.

    Returns:
        The fields of a `Seen`.
    """
    missing: list[str] = []
    versions: dict[str, str] = {}
    for name in (*needed, ours):
        if name == ours and missing:
            break
        try:
            versions[name] = str(getattr(importlib.import_module(name), "__version__", ""))
        except ModuleNotFoundError as e:
            missing.append(name if f"{name}.".startswith(f"{e.name}.") else str(e.name))
        except Exception as e:  # compiled for another machine, half installed: it may raise anything
            missing.append(f"{name} ({type(e).__name__}: {' '.join(str(e).split())[:100]})")
    yield (socket.gethostname(), os.getcwd(), sys.executable, missing, versions)


def reach(urls: list[str], directories: list[str], rows: Iterable[object]) -> Iterator[tuple[str, str]]:
    """Look into stores and directories, as tasks will.

    Args:
        urls: of stores; something below each is listed.
        directories: of the driver's machine, which this one should have, too.
        rows: of the partition; not looked at.

    Returns:
        The host, and what cannot be used there; empty: nothing.
    """
    from heronpy.errors import HeronError
    from heronpy.filesystem import UrlPath, files_of

    failed = next((f"{path}: it has no such directory" for path in directories if not os.path.isdir(path)), "")
    for place in map(UrlPath, urls):
        try:
            files_of(place).listed(place / "heron-executor-probe")
        except (HeronError, OSError) as error:
            failed = failed or f"{place}: {' '.join(str(error).split())[:300]}"
    yield socket.gethostname(), failed
