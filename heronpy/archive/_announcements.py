"""Announcements: before a writer makes a file visible, it says so under `_new/`. So who knows the rest of an archive
finds what is new in it without listing it, however late the data are: `_new/<batch>@<name of the file>`, empty.

An announcement of an existing file may be removed by a reader that has recorded the file. One without a file is of a
writer that is about to rename it, or has died.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from heronpy.files import sync
from heronpy.filesystem import Location, files_of

_FOLDER = "_new"
_STALE_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Announcement:
    """A file that is there, or will be soon."""

    path: Location
    batch: int
    name: str
    """Of the file, in the folder of the batch."""
    stale: bool
    """So old that the file will not come any more."""


def announce(directory: Location, files: Iterable[tuple[int, str]]) -> None:
    """Say which files will be visible: (batch, name). On return that is durable.

    Raises:
        OSError, HeronError: it cannot be written.
    """
    folder = directory / _FOLDER
    names = [f"{batch}@{name}" for batch, name in files]
    if not isinstance(folder, Path):
        for name in names:
            files_of(folder).write(folder / name, b"\n")
        return
    folder.mkdir(exist_ok=True)
    for name in names:
        os.close(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    if names:
        sync(folder)


def announced(directory: Location) -> list[Announcement]:
    """What has been announced, and not been removed.

    Raises:
        OSError, HeronError: it cannot be listed.
    """
    found = []
    for file in files_of(directory).listed(directory / _FOLDER):
        batch, at, name = file.path.name.partition("@")
        with contextlib.suppress(ValueError):
            if at:
                stale = time.time() - file.modified_s > _STALE_S
                found.append(Announcement(file.path, int(batch), name, stale))
    return found
