"""What no manifest names, found and removed: of runs that died, of programs that had other views.

A run finds what is noted (`intents`, `Manifest.garbage`), and searches all that is there only while that is little.
`search` finds all of it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from heronpy.archive import DEAD_LETTERS
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.computing import VERSION
from heronpy.pipeline.intents import INTENTS, unfinished
from heronpy.pipeline.job import Job
from heronpy.pipeline.letters import find_letters, letters_of, stale_letters
from heronpy.pipeline.manifest import CHILDREN, HISTORY, MANIFEST_FILE, Manifest, Tier, every_tier
from heronpy.pipeline.reductions import STATES, STORED_STATES

_SEARCHED_BATCHES = 256
_STORED_STATES = re.compile(rf"{STORED_STATES}{VERSION}")
"""Of a run: the directory may be a whole bucket, with what others call so."""


def find_leftovers(job: Job, manifest: Manifest, *, thorough: bool = False) -> list[Location]:
    """What the manifest does not name, as far as it is known without a search through a long history.

    In a store it is looked for before the manifest is claimed, and removed afterwards: so nothing of it is of a run
    that has taken over meanwhile.

    Args:
        job: whose.
        manifest: what counts.
        thorough: search, however long it takes.

    Raises:
        OSError, HeronError: it cannot be determined.
    """
    directory = job.directory
    found: list[Location] = []
    folders, notes, versions = unfinished(directory, manifest)
    if thorough or None in versions or len(manifest.batches) <= _SEARCHED_BATCHES:
        found += search(directory, manifest)
        found += stale_letters(find_letters(directory), manifest)
    elif versions:
        found += stale_letters(letters_of(find_letters(directory), versions), manifest)
    for folder in filter(_of_outputs, {*folders, *manifest.garbage}):
        found += _files_in(directory / folder)
    kept = manifest.segment_files()
    found += [file.path for file in files_of(directory).listed(directory / HISTORY) if file.path.name not in kept]
    if isinstance(directory, Path):
        found += [folder for folder in _folders(directory) if folder.name.startswith(STATES)]
        found += _torn(directory)
    else:
        states = (file.path for file in files_of(directory).find(directory, STORED_STATES))
        found += [path for path in states if _STORED_STATES.fullmatch(path.parts[len(directory.parts)])]
    return found + notes  # last: if this one dies, too, the next finds them


def _torn(directory: Path) -> list[Path]:
    """What a run was writing that died, or could not even remove it: there is one run at a time."""
    places = (f".{MANIFEST_FILE}.*.tmp", f"{HISTORY}/.*.tmp", f"{INTENTS}/.*.tmp")
    return [path for place in places for path in directory.glob(place)]


def _of_outputs(folder: str) -> bool:
    """Whether a folder is below those of the outputs: a manifest has nothing else removed."""
    parts = PurePosixPath(folder).parts
    return len(parts) > 2 and parts[0] in ("views", "sinks", DEAD_LETTERS) and ".." not in parts


def _files_in(folder: Location) -> list[Location]:
    if isinstance(folder, Path):
        return [folder] if folder.exists() else []
    if folder.suffix:  # dead letters are named one by one
        return [folder]
    return list(files_of(folder).below(folder))


def search(directory: Location, manifest: Manifest) -> list[Location]:
    """Folders (in a store: objects) of views and sinks that the manifest does not name.

    Raises:
        OSError, HeronError: they cannot be listed.
    """
    tiers = every_tier(directory, manifest)
    if not isinstance(directory, Path):
        return _stored(directory, manifest, tiers)
    kept = {folder for n, batch in manifest.batches.items() for folder in batch.folders(n)}
    kept |= {f"views/{view}/base/{tier.version}" for view, tier in tiers}
    found: list[Location] = []
    for kind in ("views", "sinks"):
        for output in _folders(directory / kind):
            for version in [version for batch in _folders(output) for version in _folders(batch)]:
                if f"{kind}/{output.name}/{version.parent.name}/{version.name}" not in kept:
                    found.append(version)
                else:  # attempts at tasks that did not count have been killed
                    found += version.glob(".*")
    return found


def _stored(directory: Location, manifest: Manifest, tiers: Sequence[tuple[str, Tier]]) -> list[Location]:
    """Also what attempts at tasks have left that did not count: nothing is renamed, so it is beside what does."""
    named: set[tuple[str, ...]] = set()
    for n, done in manifest.batches.items():
        for kind, outputs in (("views", done.views), ("sinks", done.sinks)):
            for output, parts in outputs.items():
                named |= {(kind, output, f"batch={n}", done.version_of(parts), name) for name in parts.names()}
    for view, tier in tiers:
        named |= {("views", view, "base", tier.version, name) for name in [*tier.parts.names(), CHILDREN]}
    found: list[Location] = []
    for kind in ("views", "sinks"):
        folder = directory / kind
        for path in files_of(folder).below(folder):
            where = (kind, *path.parts[len(folder.parts) :])  # kind, output, batch, version, name; others' files stay
            if len(where) == 5 and path.name and where not in named:
                found.append(path)
    return found


def remove_leftovers(found: Sequence[Location]) -> None:
    """Remove what `find_leftovers` has found.

    Raises:
        OSError, HeronError: a file cannot be removed.
    """
    files = []
    for path in found:
        if isinstance(path, Path) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            files.append(path)
    if files:
        files_of(files[0]).delete(files)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
