"""A module whose name starts with `_` is imported only from inside of its own package, tests included."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("heronpy", "scheduler", "tracker", "tests")
OURS = ("heronpy", "heron_scheduler", "heron_tracker")


def package_of(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(ROOT).parts[:-1]
    return parts[1:] if parts[0] in ("scheduler", "tracker") else parts


STATEMENT = re.compile(r"^[ \t]*((?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+(?:\([^)]*\)|[^\n]*))", re.MULTILINE)
"""What may be an import. To parse nothing else takes a fortieth of the time of whole files."""


def imported(source: str, package: tuple[str, ...]) -> Iterator[str]:
    """The dotted names that a module imports, and those that code in its strings does."""
    for statement in STATEMENT.findall(source):
        try:
            (node,) = ast.parse(statement).body
        except SyntaxError:  # words of a docstring
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def crossing(name: str, package: tuple[str, ...]) -> bool:
    """Whether a name leads into a private module of another package."""
    parts = name.split(".")
    if parts[0] not in OURS:
        return False
    for at, part in enumerate(parts):
        if part.startswith("_") and not part.startswith("__"):
            return package[:at] != tuple(parts[:at])
    return False


@functools.cache
def leaks() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            package = package_of(path)
            names = [n for n in imported(path.read_text(), package) if crossing(n, package)]
            if names:
                found[str(path.relative_to(ROOT))] = names
    return found


def test_no_package_imports_a_private_module_of_another() -> None:
    assert leaks() == {}, "export the name in the package's __init__, or in its face for tests (`parts`, `task`)"


def test_what_crosses_a_boundary_is_found() -> None:
    assert crossing("heronpy.stmgr._link.Link", ("heronpy", "instance"))
    assert crossing("heronpy.stmgr._link", ("tests", "unit"))
    assert not crossing("heronpy.stmgr._link.Link", ("heronpy", "stmgr"))
    assert not crossing("heronpy.metricsmgr._sinks.X", ("heronpy", "metricsmgr", "sinks"))
    assert not crossing("heronpy.__version__", ("tests",))
    assert not crossing("collections._private", ("heronpy",))


@pytest.mark.parametrize("on_clusters", [False, True])
def test_no_two_modules_of_one_test_run_have_the_same_name(on_clusters: bool) -> None:
    apart = {"clusters", "hosts"}  # `make test-clusters`
    paths = [path for path in (ROOT / "tests").glob("*/*.py") if (path.parent.name in apart) == on_clusters]
    names = Counter(path.name for path in paths if path.name != "conftest.py")
    assert paths
    assert [name for name, times in names.items() if times > 1] == [], "pytest imports them by their name alone"


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import os
from heronpy.stmgr import (
    Stmgr,  # a comment
    Link as Other,
)
from ._link import Link

def later():
    from heronpy.instance import core
    import heronpy.plan, sys  # the import of a comment
"""
    assert [*imported(source, ("heronpy", "stmgr"))] == [
        "os",
        "heronpy.stmgr.Stmgr",
        "heronpy.stmgr.Link",
        "heronpy.stmgr._link.Link",
        "heronpy.instance.core",
        "heronpy.plan",
        "sys",
    ]
