"""Dead letters of batch runs: files of a batch and a version, which count as long as the manifest names both.

Spark may try a task several times, and a batch may be computed several times. Tasks write their dead letters to files
of their own, staged: they come to count with the results of the attempt that counts, and go with the batch's version.
"""

from __future__ import annotations

import re
from pathlib import Path

from heronpy.archive import DEAD_LETTERS
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.manifest import Manifest

ANY = "any"
"""Instead of a batch id: it is not known."""
_NAME = re.compile(rf"(?P<staged>[.~]?)batch=(?P<batch>-?\d+|{ANY})-(?P<version>[0-9a-f]+-[0-9a-f]{{8}})-.*")


def staged_name(batch: int | None, version: str) -> str:
    """How the names of a task's files begin."""
    return f"batch={ANY if batch is None else batch}-{version}"


def remove_letters(directory: Location, manifest: Manifest, newest: str = "") -> None:
    """Remove dead letters of batch runs that count no longer: the same events have them in a newer version.

    Args:
        directory: the job's.
        manifest: names the versions that count, and
        newest: one that counts though it may have nothing but dead letters.

    Raises:
        OSError: some stay, and their events are there twice until a run has removed them.
    """
    versions = {newest, *(batch.version for batch in manifest.batches.values())}
    files = files_of(directory)
    for path in _letters(directory / DEAD_LETTERS):
        if (named := _NAME.fullmatch(path.name)) is not None:
            done = None if named["batch"] == ANY else manifest.batches.get(int(named["batch"]))
            counts = named["version"] == done.version if done is not None else named["version"] in versions
            if named["staged"] or not counts:
                files.delete([path])


def _letters(folder: Location) -> list[Location]:
    if isinstance(folder, Path):  # also staged ones, which are hidden there
        return list(folder.glob("*/*batch=*"))
    return [file.path for _, files in files_of(folder).folders(folder) for file in files]
