"""Paths that begin with `~`."""

from __future__ import annotations

import os
from pathlib import Path

from heronpy.errors import ConfigError


def user_path(path: str | os.PathLike[str]) -> Path:
    """A path with `~` and `~user` at its beginning replaced by that user's home directory.

    Raises:
        ConfigError: it has none: HOME is not set, and the uid has no name, as in many containers.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as e:
        raise ConfigError(f"{os.fspath(path)}: uid {os.getuid()} has no such home directory: set HOME") from e
