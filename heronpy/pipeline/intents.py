"""What a run is about to write, noted before it does: the next run knows what one that died has left, and need not
search among all that is there. A note goes when the manifest names what was written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container, Sequence
from typing import Any

import msgspec

from heronpy.errors import HeronError
from heronpy.filesystem import Found, Location, files_of
from heronpy.pipeline.manifest import Manifest, every_tier
from heronpy.pipeline.task import Report

INTENTS = "intents"
"""The folder of the notes, in the job's directory."""
_KEPT_S = 3600.0
"""A note of what was not finished stays so long: tasks may outlive their driver for a while, and write on."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A note."""

    version: str
    """Of what is written."""
    outputs: tuple[str, ...]
    """Folders of views and sinks below the job's; of tiers, their own."""
    batches: tuple[int, ...] | None = ()
    """Of which there are folders in `outputs`; None: not known."""

    def folders(self) -> list[tuple[str, int | None]]:
        """Below the job's folder, and their batches; none, if the batches are not known."""
        if self.batches == ():
            return [(output, None) for output in self.outputs]
        return [(f"{o}/batch={n}/{self.version}", n) for o in self.outputs for n in self.batches or ()]


def intend(directory: Location, version: str, outputs: Sequence[str], batches: Sequence[int] | None = ()) -> Location:
    """Note what will be written; the note, for `settle`. Until then it is a leftover, if the process dies.

    Raises:
        OSError, HeronError: the note cannot be written.
    """
    path = directory / INTENTS / f"{version}.json"
    batches = None if batches is None else tuple(batches)
    files_of(path).write(path, msgspec.json.encode(Intent(version=version, outputs=tuple(outputs), batches=batches)))
    return path


def settle(note: Location) -> None:
    """Remove a note: the manifest names what was written."""
    with contextlib.suppress(HeronError, OSError):  # the next run finds that all of it counts
        files_of(note).delete([note])


def undo(directory: Location, note: Location, report: Report) -> None:
    """Remove what was written, and its note: it is to be computed otherwise.

    Raises:
        OSError, HeronError: it cannot be removed now; the next run does.
    """
    files = files_of(directory)
    for folder, _ in msgspec.json.decode(files.read(note), type=Intent).folders():
        files.delete_folder(directory / folder)
    files.delete(report.letters)
    settle(note)


def unfinished(directory: Location, manifest: Manifest) -> tuple[list[str], list[Location], set[str | None]]:
    """What runs that died have left: folders below the job's; notes that are to go; versions (None: not all is known).

    Raises:
        OSError, HeronError: the notes cannot be read.
    """
    folders: list[str] = []
    notes: list[Location] = []
    versions: set[str | None] = set()
    tiers: set[str] | None = None
    found: list[Found[Any]] = files_of(directory).listed(directory / INTENTS)
    for file in found:
        try:
            note = msgspec.json.decode(files_of(file.path).read(file.path), type=Intent)
        except (FileNotFoundError, msgspec.DecodeError, ValueError):
            versions.add(None)
            notes.append(file.path)
            continue
        if note.batches == () and tiers is None:
            tiers = {f"views/{view}/base/{tier.version}" for view, tier in every_tier(directory, manifest)}
        left = [f for f, batch in note.folders() if not _counts(f, batch, manifest, tiers or ())]
        folders += left
        if left or note.batches is None:
            versions |= {note.version, *([None] if note.batches is None else [])}
        if not left or time.time() - file.modified_s > _KEPT_S:
            notes.append(file.path)
    return folders, notes, versions


def _counts(folder: str, batch: int | None, manifest: Manifest, tiers: Container[str]) -> bool:
    if batch is None:
        return folder in tiers
    done = manifest.batches.get(batch)
    return done is not None and folder in done.folders(batch)
