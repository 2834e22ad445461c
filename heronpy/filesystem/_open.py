"""Which files a location is of."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from heronpy.errors import ConfigError
from heronpy.files import local_path
from heronpy.filesystem._local import LocalFiles
from heronpy.filesystem._spi import Files
from heronpy.filesystem._stored import StoredFiles
from heronpy.filesystem._url_path import Location, UrlPath

SCHEMES = ("s3", "hdfs", "viewfs")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_LOCAL = LocalFiles()
_opened: dict[tuple[int, str], StoredFiles] = {}
"""By process and URL: connections must not be shared with a fork."""


def location(what: str, path: str | os.PathLike[str] | UrlPath) -> Location:
    """A path, absolute, or a URL of a store. Nothing is connected.

    Args:
        what: what it is of, for the error.
        path: a path (a relative one begins at the present directory), `file:///path`, `s3://bucket/prefix` with the
            options `endpoint` and `region`, or `hdfs://host:port/path`. Credentials are found as the stores of
            checkpoints find them, never in the URL.

    Raises:
        ConfigError: it is another URL, or one that lacks something.
    """
    if isinstance(path, UrlPath):
        return path
    text = os.fspath(path)
    found = _URL.match(text) if isinstance(text, str) else None
    if found is None:
        return local_path(what, path)
    try:
        parts = urlsplit(text)
    except ValueError as e:
        raise ConfigError(f"{what}: the URL is not one: {e}") from None
    if "@" in parts.netloc or any("@" in value for name, value in parse_qsl(parts.query) if name == "endpoint"):
        raise ConfigError(f"{what}: credentials are not in the URL; they are found in the environment")
    if parts.fragment:
        raise ConfigError(f"{what}: a URL of a store has no fragment: what is after its # would be left out")
    shown = text.partition("?")[0]
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return local_path(what, unquote(parts.path))
    if parts.scheme not in SCHEMES:
        raise ConfigError(
            f"{what} {shown!r}: {parts.scheme}: is not supported here, only directories and "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        )
    if not parts.netloc:
        raise ConfigError(f"{what} {shown!r}: it names no bucket or host: s3://bucket/prefix, hdfs://host:port/path")
    return UrlPath(text)


def files_of(place: Location) -> Files[Any]:
    """What can be done where a location is. A store is opened once per process.

    Raises:
        ConfigError: what the store needs is not installed, or its URL lacks something.
        UnavailableError: it does not answer.
    """
    return _LOCAL if isinstance(place, Path) else stored_files(place)


def stored_files(place: UrlPath) -> StoredFiles:
    """As `files_of`, of a store.

    Raises:
        HeronError: as `files_of`.
    """
    key = (os.getpid(), place.root)
    files = _opened.get(key)
    if files is None:
        from heronpy.checkpoints import open_storage

        files = _opened[key] = StoredFiles(open_storage(place.root))
    return files
