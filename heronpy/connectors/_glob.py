"""Which files match a pattern.

`glob.glob` takes a directory that cannot be listed for an empty one. For want of file descriptors a source would then
pass over files that are whole, and end as if it had read them all.
"""

from __future__ import annotations

import errno
import fnmatch
import functools
import glob
import logging
import os
from collections.abc import Iterator, Sequence

from heronpy.files import ABSENT

_ANY_FOLDERS = "**"
_log = logging.getLogger(__name__)


def matching(pattern: str) -> list[str]:
    """The files that match an absolute pattern now, in no order; as with `glob.glob`, `**` stands for any folders.

    Raises:
        OSError: a directory cannot be listed now, so there may be more.
    """
    return list(_below("/", pattern.lstrip("/").split("/")))


def _below(folder: str, parts: Sequence[str]) -> Iterator[str]:
    first, rest = parts[0], parts[1:]
    if first == _ANY_FOLDERS:
        yield from _below(folder, rest or ["*"])
        for entry in _listed(folder):
            if not entry.name.startswith(".") and _may_be_folder(entry):
                yield from _below(entry.path, parts)
    elif not glob.has_magic(first):
        yield from _found(os.path.join(folder, first), rest)
    else:
        for entry in _listed(folder):
            hidden = entry.name.startswith(".") and not first.startswith(".")
            if not hidden and fnmatch.fnmatch(entry.name, first) and (not rest or _may_be_folder(entry)):
                yield from _found(entry.path, rest)


def _found(path: str, rest: Sequence[str]) -> Iterator[str]:
    if rest:
        yield from _below(path, rest)
    elif os.path.lexists(path) and not os.path.isdir(path):
        yield path


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_dir(follow_symlinks=False)


def _listed(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError as e:
        _warn(folder, str(e.strerror))
        return []
    except ABSENT:
        return []
    except OSError as e:
        if e.errno == errno.ELOOP:  # links that lead in a circle
            return []
        raise


@functools.lru_cache(maxsize=1000)
def _warn(folder: str, reason: str) -> None:
    """Once: files are looked for again and again."""
    _log.warning("%s cannot be listed, so nothing in it is read: %s", folder, reason)
