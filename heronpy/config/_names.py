"""Names of clusters, topologies, components, …"""

from __future__ import annotations

import re

from heronpy.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}")


def is_name(name: str) -> bool:
    """Whether it can be part of a path and of an id."""
    return _NAME.fullmatch(name) is not None


def check_name(kind: str, name: str) -> str:
    """`name`, if it can be part of a path and of an id.

    Raises:
        ConfigError: it is empty, too long, or has other characters than letters, digits, `_`, `.`, `@` and `-`.
    """
    if not is_name(name):
        raise ConfigError(
            f"{name!r} is no {kind}: use at most 128 letters, digits and _ . @ -, with a letter, digit or _ first"
        )
    return name
