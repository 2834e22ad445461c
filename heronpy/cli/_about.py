"""`version` and `help`."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

import heronpy
from heronpy.errors import UsageError


def version() -> None:
    """Print the versions of heronpy and of Python."""
    print(f"heronpy {heronpy.__version__} (Python {platform.python_version()})")


def help(ctx: typer.Context, verb: Annotated[list[str] | None, typer.Argument(metavar="[VERB]...")] = None) -> None:
    """Explain the verbs, or one of them."""
    shown = ctx.parent or ctx
    for word in verb or []:
        if not hasattr(shown.command, "get_command"):
            raise UsageError(f"`{shown.command_path}` has no commands of its own: see `{shown.command_path} --help`")
        command = shown.command.get_command(shown, word)
        shown = type(ctx)(command, info_name=word, parent=shown)
    print(shown.get_help())
