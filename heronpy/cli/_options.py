"""Options that several verbs share."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from heronpy.errors import ConfigError, UsageError
from heronpy.files import user_path

SERVICE_URL_ENV = "HERON_SERVICE_URL"


def home() -> Path:
    """The directory of everything that `heron` keeps: $HERON_HOME, or ~/.heron. It need not exist yet.

    Raises:
        ConfigError: it can never be a directory, because a file is in its place; or this user has no home directory.
    """
    given = os.environ.get("HERON_HOME")
    try:
        path = user_path(given or "~/.heron").absolute()
    except ConfigError as e:
        raise ConfigError(f"HERON_HOME is not set, and {e}" if not given else f"HERON_HOME {e}") from e
    existing = next(p for p in (path, *path.parents) if p.exists() or p.is_symlink())
    if not existing.is_dir():
        raise ConfigError(f"HERON_HOME {path} cannot be a directory: {existing} is not one")
    return path


def _be_verbose(value: bool) -> bool:
    if value:
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("heronpy").setLevel(logging.DEBUG)
        logging.getLogger("heron_scheduler").setLevel(logging.DEBUG)
    return value


def show_warnings() -> None:
    """Let the user see what a command warns of; --verbose shows it anyway."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("warning: %(message)s"))
        handler.setLevel(logging.WARNING)
        for name in ("heronpy.submit", "heron_scheduler"):
            logging.getLogger(name).addHandler(handler)


def read_properties(given: list[str]) -> dict[str, Any]:
    """`K=V` strings as a map; values are read as YAML scalars are.

    Raises:
        UsageError: one has no `=`.
    """
    import yaml

    properties = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--config-property {pair!r} must have the form KEY=VALUE")
        try:
            properties[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            properties[key.strip()] = value
    return properties


def path_given(text: str) -> Path:
    """The path of an option. Nothing is no path: it is a variable that is not set, not the current directory.

    Raises:
        UsageError: it is empty.
    """
    if not text:
        raise UsageError("an option that needs a path has got an empty one: name it, or leave the option out")
    return Path(text)


Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Log to stderr, and show tracebacks.", callback=_be_verbose, is_eager=True),
]
ConfigPath = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", parser=path_given, help="Directory that holds the clusters' configuration directories."
    ),
]
ConfigProperty = Annotated[
    list[str] | None, typer.Option(metavar="K=V", help="Override a key of the configuration; may be repeated.")
]
ServiceUrl = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar=SERVICE_URL_ENV,
        help="Have the API server at this URL do it (heron apiserver).",
        show_default=False,
        show_envvar=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.", show_default=False)]
Words = Annotated[list[str], typer.Argument(metavar="[CLUSTER[/ROLE[/ENV]]] NAME", help="Which topology.")]
