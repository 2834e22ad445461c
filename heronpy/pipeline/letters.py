"""Dead letters of batch runs: files of a batch and a version, which count as long as the manifest names both.

Spark may try a task several times, and a batch may be computed several times. Tasks write their dead letters to files
of their own, staged: they come to count with the results of the attempt that counts, and go with the batch's version.
Saving the manifest is what makes them count, as everything else: it names them, and they are published afterwards.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Iterable
from pathlib import Path

from heronpy import archive
from heronpy.archive import DEAD_LETTERS
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.manifest import Manifest

ANY = "any"
"""Instead of a batch id: it is not known."""
_NAME = re.compile(rf"(?P<staged>[.~]?)batch=(?P<batch>-?\d+|{ANY})-(?P<version>[0-9a-f]+-[0-9a-f]{{8}})-.*")


def staged_name(batch: int | None, version: str) -> str:
    """How the names of a task's files begin."""
    return f"batch={ANY if batch is None else batch}-{version}"


def is_of_run(path: Location) -> bool:
    """Whether a file of dead letters is a batch run's; else it is the topology's."""
    return _NAME.fullmatch(path.name) is not None


def find_letters(directory: Location) -> list[Location]:
    """Files of dead letters of a job's batch runs, also staged ones."""
    folder = directory / DEAD_LETTERS
    if isinstance(folder, Path):  # also staged ones, which are hidden there
        paths: list[Location] = list(folder.glob("*/*batch=*"))
    else:
        paths = [file.path for _, files in files_of(folder).folders(folder) for file in files]
    return [*filter(is_of_run, paths)]


def stale_letters(letters: Iterable[Location], manifest: Manifest, newest: str = "") -> list[Location]:
    """Those that count no longer, which are to be removed: the same events have them in a newer version.

    Args:
        letters: as `find_letters` has found them.
        manifest: of the job.
        newest: the version of a Spark job that has just succeeded, which may have no batch.
    """
    stale = []
    waiting = set(manifest.letters)
    for path in letters:
        if (named := _NAME.fullmatch(path.name)) is not None:
            done = None if named["batch"] == ANY else manifest.batches.get(int(named["batch"]))
            version = named["version"]
            if named["staged"]:
                counts = f"{path.parent.name}/{path.name}" in waiting
            elif done is not None:
                counts = version == done.version
            else:
                counts = version == newest or _is_in(manifest, version)
            if not counts:
                stale.append(path)
    return stale


def publish_letters(directory: Location, manifest: Manifest) -> None:
    """Publish the dead letters that a manifest names, which is saved; it names none afterwards.

    Raises:
        OSError, HeronError: some are not published. The next run does it.
    """
    for name in manifest.letters:
        with contextlib.suppress(FileNotFoundError):  # it is already, or somebody has removed it
            archive.publish_letters([directory / DEAD_LETTERS / name])
    manifest.letters = []


def letters_of(letters: Iterable[Location], versions: Container[str | None]) -> list[Location]:
    """Those of some versions, and those that are staged."""
    found = [(path, _NAME.fullmatch(path.name)) for path in letters]
    return [path for path, named in found if named is not None and (named["staged"] or named["version"] in versions)]


def is_of_others(path: Location, batches: Container[int]) -> bool:
    """Whether dead letters are of no batch, or of none of these: they count as long as a batch has their version."""
    named = _NAME.fullmatch(path.name)
    return named is not None and (named["batch"] == ANY or int(named["batch"]) not in batches)


def _is_in(manifest: Manifest, version: str) -> bool:
    """Whether a batch has a version."""
    batches = manifest.lettered.get(version)
    if batches is None:  # of an earlier heronpy
        return any(done.version == version for done in manifest.batches.values())
    return any((done := manifest.batches.get(n)) is not None and done.version == version for n in batches)
