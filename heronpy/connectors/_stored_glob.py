"""Which files of a store match a pattern: those that would in a directory, see `_glob.py`.

A `?` cannot be part of a pattern: in a URL it begins the options.
"""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Sequence

from heronpy.filesystem import Found, UrlPath, files_of

HIDDEN = "_heron"
"""What sinks keep in a store before it is committed. As names that begin with a dot, no pattern matches it."""
_ANY_FOLDERS = "**"


def below_store(place: UrlPath) -> UrlPath:
    """The same place below its bucket, or below the first directory of an HDFS: so all share one connection."""
    if place.inner:
        return place
    base, mark, options = place.root.partition("?")
    scheme, _, rest = base.partition("://")
    kept = 1 if scheme == "s3" else 2
    parts = [part for part in rest.split("/") if part]
    root = f"{scheme}://{'/'.join(parts[:kept])}{mark}{options}"
    return UrlPath(root, "/".join(parts[kept:]))


def matching_stored(pattern: UrlPath) -> list[Found[UrlPath]]:
    """The files that match now, in no order.

    Raises:
        HeronError: the store cannot be listed.
    """
    fixed = next((n for n, c in enumerate(pattern.inner) if c in "*?["), len(pattern.inner))
    found = files_of(pattern).find(UrlPath(pattern.root), pattern.inner[:fixed])
    exact = [file for file in found if file.path.inner == pattern.inner]
    if exact or not glob.has_magic(pattern.inner):
        return exact
    parts = pattern.inner.split("/")
    files = [file for file in found if not file.path.inner.endswith("/")]  # so are folders called that consoles make
    return [file for file in files if _match(file.path.inner.split("/"), parts)]


def _match(name: Sequence[str], parts: Sequence[str]) -> bool:
    if not parts or not name:
        return not parts and not name
    first, rest = parts[0], parts[1:]
    if first == _ANY_FOLDERS:
        deeper = len(name) > 1 and not _is_hidden(name[0]) and _match(name[1:], parts)
        return deeper or _match(name, rest or ["*"])
    if not glob.has_magic(first):
        return name[0] == first and _match(name[1:], rest)
    hidden = _is_hidden(name[0]) and not _is_hidden(first)
    return not hidden and fnmatch.fnmatchcase(name[0], first) and _match(name[1:], rest)


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or part == HIDDEN
