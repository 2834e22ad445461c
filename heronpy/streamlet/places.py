"""Where the archives of a program may be: each in a place of its own, and none among what runs write and remove."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from heronpy.errors import TopologyError
from heronpy.streamlet.graph import ArchiveNode, Graph

if TYPE_CHECKING:
    from heronpy.filesystem import Location

OWN = frozenset(
    (
        "bootstrap",
        "dead-letter",
        "history",
        "intents",
        "live",
        "manifest.json",
        "manifest.lock",
        "positions",
        "reports",
        "sinks",
        "views",
    )
)
"""What is in a job's directory beside `archive/`: see `heronpy.pipeline.job`."""


def check_archives(graph: Graph, directory: Location | None) -> None:
    """Refuse archives that others would write to, or that batch runs would remove.

    Args:
        graph: the program's, with its names.
        directory: the job's, if there is one.

    Raises:
        TopologyError: two are in one place, or one is where the job has its views and the like.
    """
    own = None if directory is None else _parts(directory)
    there: dict[tuple[str, ...], str] = {}
    for node in graph.nodes():
        if not isinstance(node, ArchiveNode):
            continue
        place = node.path
        if place is None:
            if directory is None:
                continue
            place = directory / "archive" / node.archive_name
        parts, name = _parts(place), node.archive_name
        if (other := there.setdefault(parts, name)) != name:
            raise TopologyError(
                f"the archives {other} and {name} are both in {place}: each would be read with the elements of both; "
                "give each a directory of its own"
            )
        if own is not None and parts[: len(own)] == own and OWN.intersection(parts[len(own) : len(own) + 1]):
            raise TopologyError(
                f"the archive {name} is in {place}, where batch runs keep and remove files of their own: give it "
                "another directory, or none"
            )


def _parts(place: Location) -> tuple[str, ...]:
    if isinstance(place, Path):
        return Path(os.path.realpath(place)).parts
    base, _, options = place.url.partition("?")
    return (repr(sorted(parse_qsl(options))), *base.rstrip("/").split("/"))
