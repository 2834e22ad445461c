"""What the examples' command lines have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heronpy.api import api_constants


def name_and_containers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the topology's name")
    parser.add_argument("--containers", type=count_of("container"), default=1, help="containers (default 1)")


def count(parser: argparse.ArgumentParser, flag: str, default: int, what: str) -> None:
    """An argument that says how many tasks there are."""
    parser.add_argument(flag, type=count_of("task"), default=default, help=f"tasks that {what} (default {default})")


def input_files(parser: argparse.ArgumentParser, what: str) -> None:
    """Not looked for yet: a batch job reads the archive, and its program's input may be gone."""
    parser.add_argument("--input", type=Path, nargs="+", required=True, help=what)


def parsed_with_input(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; exits with 2 and one line on stderr if they are wrong, or an input is not there."""
    arguments = parser.parse_args(argv)
    for path in arguments.input:
        if not path.is_file():
            parser.error(f"--input: {path} is not a file")
    return arguments


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
