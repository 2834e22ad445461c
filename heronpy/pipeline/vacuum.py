"""Vacuum: what no manifest names is searched for, however long the history is; and what is too old to be kept.

Runs remove what they know of. What they cannot know is rare: files that a task wrote after its driver had died and been
followed, or what a program had that was given another name.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from heronpy.archive import DEAD_LETTERS, Archive
from heronpy.errors import HeronError, TopologyError
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.job import Job
from heronpy.pipeline.leftovers import find_leftovers, remove_leftovers
from heronpy.pipeline.letters import find_letters
from heronpy.pipeline.manifest import Manifest, lock
from heronpy.pipeline.plan import plan_batch


@dataclass(slots=True)
class VacuumReport:
    """What a vacuum has removed, or would remove."""

    leftovers: list[str] = field(default_factory=list)
    """Folders and files of views, sinks and the manifest that no manifest names."""
    letters: list[str] = field(default_factory=list)
    """Files of dead letters that were too old."""
    announcements: int = 0
    """Of files in archives that no batch run has ever looked at."""
    gone_views: dict[str, int] = field(default_factory=dict)
    """Views that the program no longer has, and in how many batches they are, or were."""

    def __str__(self) -> str:
        return (
            f"{len(self.leftovers)} leftovers, {len(self.letters)} old files of dead letters, "
            f"{self.announcements} old announcements"
        )


def vacuum(
    job: Job, *, letters_older_than_s: float | None = None, gone_views: bool = False, dry_run: bool = False
) -> VacuumReport:
    """Remove what no manifest names.

    Args:
        job: whose files.
        letters_older_than_s: dead letters that were last written to so long ago go, too; None: they stay.
        gone_views: batch views that the program no longer has go, too. Otherwise they come back with it.
        dry_run: remove nothing.

    Raises:
        AlreadyExistsError: a batch run works on the job's directory.
        HeronError: a file cannot be listed or removed now.
    """
    try:
        with lock(job.directory) as confirm:
            return _vacuum(job, letters_older_than_s, confirm, gone_views=gone_views, dry_run=dry_run)
    except OSError as error:
        raise HeronError(f"cannot tidy up {job.directory}: {error}") from error


def _vacuum(
    job: Job, letters_older_than_s: float | None, confirm: Callable[[], None], *, gone_views: bool, dry_run: bool
) -> VacuumReport:
    manifest = Manifest.load(job.directory, job.batch_length_ms)
    gone = _gone_views(job, manifest)
    if gone_views:
        _forget(manifest, gone)
    leftovers = find_leftovers(job, manifest, thorough=True)
    letters = _old_letters(job.directory, letters_older_than_s)
    announcements = _old_announcements(job, manifest)
    if not dry_run:
        confirm()
        manifest.claim(job.directory)  # none of it is of a run that has taken over: it would have been faster
        if gone_views and gone:
            manifest.save(job.directory)  # before what it named is removed
        remove_leftovers(leftovers)
        for paths in (letters, announcements):
            if paths:
                files_of(paths[0]).delete(paths)
    return VacuumReport([str(path) for path in leftovers], [str(path) for path in letters], len(announcements), gone)


def _gone_views(job: Job, manifest: Manifest) -> dict[str, int]:
    """Views in batches that neither readers nor runs of the program use, and in how many batches they are."""
    try:
        used = {*job.stores(), *plan_batch(job).stores()}
    except TopologyError:
        return {}  # what its runs would keep is not known
    counts: Counter[str] = Counter()
    for segment in manifest.batches.segments():
        counts.update({view: batches for view, (batches, _) in segment.views.items() if view not in used})
    return dict(counts)


def _forget(manifest: Manifest, views: Collection[str]) -> None:
    """Let a manifest name no files of some views."""
    for view in views:
        manifest.tiers.pop(view, None)
    for n, done in list(manifest.batches.where(lambda segment: not segment.views.keys().isdisjoint(views))):
        if not done.views.keys().isdisjoint(views):
            kept = {view: parts for view, parts in done.views.items() if view not in views}
            monoids = {view: monoid for view, monoid in done.monoids.items() if view not in views}
            manifest.batches[n] = replace(done, views=kept, monoids=monoids)


def _old_letters(directory: Location, older_than_s: float | None) -> list[Location]:
    """Of batch runs. Those of the live side may be open."""
    if older_than_s is None:
        return []
    of_runs = {str(path) for path in find_letters(directory)}
    before_s = time.time() - older_than_s
    return [
        file.path
        for _, listed in files_of(directory).folders(directory / DEAD_LETTERS)
        for file in listed
        if str(file.path) in of_runs and file.modified_s < before_s
    ]


def _old_announcements(job: Job, manifest: Manifest) -> Sequence[Location]:
    """Where no run has begun with what others have found, no run needs them: a first run looks at everything."""
    found: list[Location] = []
    for node in job.archives().values():
        archive = Archive(job.archive_path(node))
        if node.path is None and node.stage not in manifest.checked:
            found += [said.path for said in archive.announced() if said.stale]
    return found
