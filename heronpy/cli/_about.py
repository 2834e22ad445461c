"""`version` and `help`."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

import heronpy


def version() -> None:
    """Print the versions of heronpy and of Python."""
    print(f"heronpy {heronpy.__version__} (Python {platform.python_version()})")


def help(ctx: typer.Context, verb: Annotated[str | None, typer.Argument(metavar="[VERB]")] = None) -> None:
    """Explain the verbs, or one of them."""
    parent = ctx.parent or ctx
    if verb is None:
        print(parent.get_help())
        return
    command = parent.command.get_command(parent, verb)  # type: ignore[attr-defined]  # the parent is the group of verbs
    print(command.get_help(type(ctx)(command, info_name=verb, parent=parent)))
