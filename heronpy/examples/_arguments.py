"""What the examples' command lines have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from heronpy.api import api_constants


def name_and_containers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the topology's name")
    parser.add_argument("--containers", type=count_of("container"), default=1, help="containers (default 1)")


def max_spout_pending(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-spout-pending",
        type=count_of("tuple"),
        help="unacked tuples per spout task (default: as the engine finds)",
    )


def settings_of(arguments: argparse.Namespace, reliability: str) -> dict[str, Any]:
    """The topology's configuration."""
    settings: dict[str, Any] = {
        api_constants.TOPOLOGY_STMGRS: arguments.containers,
        api_constants.TOPOLOGY_RELIABILITY_MODE: reliability,
    }
    if arguments.max_spout_pending is not None:
        settings[api_constants.TOPOLOGY_MAX_SPOUT_PENDING] = arguments.max_spout_pending
    return settings


def count_of(what: str) -> Callable[[str], int]:
    """An argparse type: a whole number that is at least 1."""

    def count(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"must be at least 1 {what}, not {text!r}")
        return int(text)

    return count
