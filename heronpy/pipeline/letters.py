"""Dead letters of batch runs: files of a batch and a version, which count as long as the manifest names both.

Spark may try a task several times, and a batch may be computed several times. Tasks write their dead letters to files
of their own, staged: they come to count with the results of the attempt that counts, and go with the batch's version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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


def find_letters(directory: Location) -> list[Location]:
    """Files of dead letters of a job's batch runs, also staged ones."""
    folder = directory / DEAD_LETTERS
    if isinstance(folder, Path):  # also staged ones, which are hidden there
        paths: list[Location] = list(folder.glob("*/*batch=*"))
    else:
        paths = [file.path for _, files in files_of(folder).folders(folder) for file in files]
    return [path for path in paths if _NAME.fullmatch(path.name)]


def stale_letters(letters: Iterable[Location], manifest: Manifest, newest: str = "") -> list[Location]:
    """Those that count no longer, which are to be removed: the same events have them in a newer version.

    Args:
        letters: as `find_letters` has found them.
        manifest: of the job.
        newest: the version of a Spark job that has just succeeded, which may have no batch.
    """
    versions = {newest, *(batch.version for batch in manifest.batches.values())}
    stale = []
    for path in letters:
        if (named := _NAME.fullmatch(path.name)) is not None:
            done = None if named["batch"] == ANY else manifest.batches.get(int(named["batch"]))
            counts = named["version"] == done.version if done is not None else named["version"] in versions
            if named["staged"] or not counts:
                stale.append(path)
    return stale


def remove_letters(letters: Iterable[Location], manifest: Manifest, newest: str = "") -> None:
    """Remove those that are stale.

    Raises:
        OSError, HeronError: some stay, and their events are there twice until a run has removed them.
    """
    if stale := stale_letters(letters, manifest, newest):
        files_of(stale[0]).delete(stale)
