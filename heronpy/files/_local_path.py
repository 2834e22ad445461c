"""Directories and files of this host, where somebody may have written a URL."""

from __future__ import annotations

import os
import re
from pathlib import Path

from heronpy.errors import ConfigError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""With one slash: `Path` leaves out the other."""


def local_path(what: str, path: str | os.PathLike[str]) -> Path:
    """A path, absolute; a relative one begins at the present directory.

    Args:
        what: what it is of, for the error.
        path: the path.

    Raises:
        ConfigError: it is a URL, which would become a directory of that name here.
    """
    text = os.fspath(path)
    if isinstance(text, str) and (url := _URL.match(text)):
        raise ConfigError(f"{what} {text!r}: {url[1]}: is not supported here, only directories and files of the host")
    return Path(path).absolute()
