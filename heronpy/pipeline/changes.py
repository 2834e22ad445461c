"""What a run has to look at, of archives that may have any number of batches.

A run that has looked at all of an archive leaves in the manifest what it has found of each batch, and which batches are
not done with it (`Manifest.todo`). The next one looks at

- batches with files that writers have announced (`Archive.announced`), however late: each was before it was there;
- those that were not done, or whose input was damaged;
- all of them, if there are not many; else some hundred more, in turn: so what was not announced (files that somebody
  has put there, taken away or exchanged by hand) is found, too, some runs later;
- and those that the batches are computed from, before them.

It looks at all of them if the program is another, if some writer announces nothing (an earlier heronpy), if the archive
is not in the job's own directory (whose announcements another job may take), or if it is ordered to.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.errors import HeronError
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.batch import Seen
from heronpy.pipeline.inputs import ArchiveInput, complete_before_ms, fingerprints, named_archives, still_unread
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Manifest
from heronpy.pipeline.plan import BatchPlan
from heronpy.streamlet.graph import SinkNode, StoreNode

if TYPE_CHECKING:
    from heronpy.archive import Announcement, ArchiveFile

LISTED_BATCHES = 1000
"""Up to so many batches of an archive are looked at by each run …"""
LISTED_FILES = 10_000
"""… with no more files than this."""
_IN_TURN = 500
_IN_TURN_STORED = 20
"""The same in a store, where each costs a request."""


@dataclass
class Found:
    """What archives have, as far as a run has to know."""

    archives: list[ArchiveInput]
    closable: int
    """The last batch that can be computed now."""
    dirty: set[int] = field(default_factory=set)
    """Batches whose input is not what they were computed from, or whose followers are not done with it."""
    affected: Collection[int] | None = None
    """Batches that may have to be computed; None: any."""
    announcements: list[Location] = field(default_factory=list)
    """Those that need not stay when this is in the manifest."""
    checked: dict[str, int | None] = field(default_factory=dict)
    """For `Manifest.checked`."""

    def looked_at(self) -> set[int] | None:
        """Batches that were; None: all."""
        return None if self.affected is None else {batch for one in self.archives for batch in one.found}


def program_of(plan: BatchPlan, span: int | None) -> str:
    """Names what decides whether a batch is done, but for its input."""
    outputs = [plan.nodes[name] for name in plan.outputs]
    views = sorted((node.store_name, node.monoid.signature) for node in outputs if isinstance(node, StoreNode))
    sinks = sorted(node.stage for node in outputs if isinstance(node, SinkNode))
    archives = sorted((node.stage, node.archive_name) for node in plan.archives())
    windows = sorted(plan.windows().items())
    return hashlib.sha256(repr((views, sinks, archives, windows, span, plan.reach_ms)).encode()).hexdigest()[:16]


def find_changes(
    job: Job,
    plan: BatchPlan,
    manifest: Manifest,
    *,
    until_ms: int | None,
    span: int | None,
    back: int,
    only: Collection[int],
    everything: bool,
    carried_span: int | None = None,
    also: Collection[int] = (),
    few_span: int | None = None,
) -> Found:
    """Look at what may be new in the archives of a plan.

    Args:
        job: the program.
        plan: what is read of it.
        manifest: what earlier runs have found. Of its damaged files, those that are mended are left out.
        until_ms: as far as batches are computed; None: as far as the archives are complete.
        span: how many batches after an element there may be something computed from it; None: any.
        back: how many batches before those that are computed are read in any case.
        only: batches to look at in any case.
        everything: look at all.
        carried_span: where `span` is None: the same without what is behind reductions, if that can be computed from
            what these have kept. Then batches after a changed one are taken to have what they were computed from.
        also: batches to look at as well.
        few_span: where `span` is None: how many batches after a changed one may have to be computed, as far as is known
            before they are; None: all.

    Raises:
        ConfigError: an archive has another batch length than the program.
        HeronError: an archive cannot be read.
    """
    archives = named_archives(job, plan, manifest.batches)
    found = Found(archives, 0)
    for one, node in zip(archives, plan.archives(), strict=True):
        one.complete_before_ms, announces = one.archive.completeness()
        if announces and node.path is None:
            found.checked[one.stage] = manifest.checked.get(one.stage)
    limit_ms = complete_before_ms(job, archives) if until_ms is None else until_ms
    found.closable = limit_ms // job.batch_length_ms - 1
    if until_ms is None and (upto := manifest.committed_watermark) is not None:
        # An archive may say less than it did, or than a run was told: its topology was submitted again, say, with other
        # input. What is done is done again with what it has then, for reads take nothing live of it.
        found.closable = max(found.closable, upto)
    stages = {one.stage for one in archives}
    known = not everything and manifest.program == program_of(plan, span)
    whole = not (known and stages <= found.checked.keys() and stages <= manifest.checked.keys())
    # Before anything is listed: what is announced later is for the next run.
    announced = {one.stage: one.archive.announced() for one in archives if one.stage in found.checked}
    batches = {*manifest.todo, *only, *also, *(said.batch for all_said in announced.values() for said in all_said)}
    whole = whole or all(_is_small(manifest, stage) for stage in stages)
    for one in archives:
        if whole:
            one.look_at_all()
        else:
            batches |= _in_turn(one, manifest, found.checked) | _unread(one, manifest)
    if not whole:
        _look_at(archives, batches)
    if until_ms is None and all(one.complete_before_ms is None for one in archives):
        _end_with_what_there_is(found, manifest, -(-plan.reach_ms // job.batch_length_ms))
    manifest.unread = still_unread(archives, manifest.unread)
    span = few_span if span is None else span
    _follow(found, manifest, span, back, only, whole=whole, carried_span=carried_span, also=also)
    for one in archives:
        found.announcements += _noted(one, announced.get(one.stage, ()))
    return found


def _end_with_what_there_is(found: Found, manifest: Manifest, reach: int) -> None:
    """Where all sources have ended, what is done ends with their last batch: later input would not be seen live else.

    Args:
        found: what is new was looked at.
        manifest: what is done.
        reach: how many batches after its element a result may lie, also in some without input.
    """
    looked = (batch for one in found.archives for batch, seen in one.found.items() if seen is not None)
    done = (batch for batch in reversed(manifest.batches) if manifest.batches[batch].inputs)
    newest = max(itertools.chain(looked, itertools.islice(done, 1)), default=None)
    if newest is not None:
        found.closable = min(found.closable, max(newest + reach, manifest.committed_watermark or newest))


def _look_at(archives: Sequence[ArchiveInput], batches: Iterable[int]) -> None:
    ordered = sorted(batches)
    for one in archives:
        one.look_at(ordered)


def _follow(
    found: Found,
    manifest: Manifest,
    span: int | None,
    back: int,
    only: Collection[int],
    *,
    whole: bool,
    carried_span: int | None,
    also: Collection[int],
) -> None:
    """Look at what changed batches are computed from, and at what that is computed from that has changed, too."""
    while True:
        inputs = fingerprints(found.archives, manifest.unread)
        looked = {batch for one in found.archives for batch in one.found}
        found.dirty = {batch for batch in looked if _is_other(manifest, batch, inputs.get(batch, {}), found.archives)}
        found.dirty |= {*manifest.todo}
        if whole:
            return
        if span is None and only:  # what was kept of the batches before those is unknown
            for one in found.archives:
                one.look_at_all()
            whole = True
            continue
        if span is None:
            if not found.dirty:
                found.affected = set()
                return
            first = min(found.dirty)
            found.affected = range(first, found.closable + 1)
            if carried_span is None:
                missing = {b for one in found.archives for b, _ in manifest.batches.seen_from(one.stage, first)}
                missing = missing.union(range(first - back, first)) - looked
            else:
                missing = _sources(_after({*found.dirty, *also}, carried_span, found.closable), carried_span) - looked
        else:
            found.affected = affected = {*only, *_after(found.dirty, span, found.closable)}
            missing = _sources(affected, span) - looked
        if not missing:
            return
        _look_at(found.archives, missing)


def _after(batches: Iterable[int], span: int, closable: int) -> set[int]:
    """Batches, and all that are not longer after any of them, up to the last that can be computed."""
    return {after for batch in batches for after in range(batch, min(batch + span, closable) + 1)}


def _sources(batches: Iterable[int], span: int) -> set[int]:
    """Batches, and all that are not longer before any of them."""
    found: set[int] = set()
    last = None
    for batch in sorted(batches):
        found.update(range(batch - span if last is None else max(batch - span, last + 1), batch + 1))
        last = batch
    return found


def _is_other(manifest: Manifest, batch: int, inputs: Mapping[str, str], archives: Sequence[ArchiveInput]) -> bool:
    """Whether the input of a batch is not what it was computed from."""
    done = manifest.batches.get(batch)
    if done is None or not done.fingerprint:
        return bool(inputs)
    return any(inputs.get(one.stage) != done.inputs.get(one.stage) for one in archives)


def _is_small(manifest: Manifest, archive: str) -> bool:
    known = [segment.seen[archive] for segment in manifest.batches.segments() if archive in segment.seen]
    return sum(one.batches for one in known) <= LISTED_BATCHES and sum(one.files for one in known) <= LISTED_FILES


def _in_turn(one: ArchiveInput, manifest: Manifest, checked: dict[str, int | None]) -> set[int]:
    """Some batches without an announcement."""
    last = checked[one.stage]
    most = _IN_TURN if isinstance(one.archive.directory, Path) else _IN_TURN_STORED
    after = manifest.batches.seen_from(one.stage, None if last is None else last + 1)
    batches = [batch for batch, _ in itertools.islice(after, most)]
    checked[one.stage] = batches[-1] if len(batches) == most else None
    if checked[one.stage] is None:  # all were looked at; now those that are unknown
        known = {batch for batch, _ in manifest.batches.seen_from(one.stage, None)}
        batches += one.archive.folders() - known
    return set(batches)


def _unread(one: ArchiveInput, manifest: Manifest) -> set[int]:
    """The batches with files that are known to be damaged."""
    begin = f"{one.archive.directory}/batch="
    names = [path.removeprefix(begin).partition("/")[0] for path in manifest.unread if path.startswith(begin)]
    return {int(name) for name in names}


def _noted(one: ArchiveInput, announced: Iterable[Announcement]) -> Iterator[Location]:
    """Announcements of files that were found, and those that nothing will come of."""
    damaged: dict[int, list[ArchiveFile]] = {}
    for file in one.damaged:
        damaged.setdefault(file.batch, []).append(file)
    names: dict[int, set[str]] = {}
    for said in announced:
        if said.batch not in names:
            listed = [*one.files.get(said.batch, ()), *damaged.get(said.batch, ())]
            names[said.batch] = one.archive.noted(listed)
        if said.stale or said.name in names[said.batch]:
            yield said.path


def remember(manifest: Manifest, found: Found, program: str, undone: Iterable[int]) -> None:
    """Put into a manifest what was found, and what is not done with it; it is to be saved.

    Args:
        manifest: changed.
        found: what was found.
        program: see `program_of`.
        undone: batches that are not done, beside those whose input is another.
    """
    for one in found.archives:
        for batch, seen in one.found.items():
            if is_other := seen != manifest.batches.seen(one.stage, batch):
                manifest.batches.set_seen(one.stage, batch, seen)
            _name_anew(manifest, one, batch, seen, is_other=is_other)
            _rename(manifest, one, batch, seen)
        if found.affected is None:
            gone = [batch for batch, _ in manifest.batches.seen_from(one.stage, None) if batch not in one.found]
            for batch in gone:
                manifest.batches.set_seen(one.stage, batch, None)
    manifest.todo = sorted({*found.dirty, *undone})
    # What is done beyond `closable` was not compared with what another program has: it will be by a run that may do it.
    if program == manifest.program or next(manifest.batches.between(found.closable + 1, None), None) is None:
        manifest.program = program
    else:
        manifest.program = ""
    manifest.checked = found.checked


def _name_anew(manifest: Manifest, one: ArchiveInput, batch: int, seen: Seen | None, *, is_other: bool) -> None:
    """After a compaction, a batch was computed from the files that there are now."""
    done = manifest.batches.get(batch)
    if seen is None or seen.unreadable or done is None or done.inputs.get(one.stage) != seen.fingerprint:
        return
    files = done.files.get(one.stage)  # None: an earlier heronpy did not say
    if (is_other or files is None) and (listed := one.listed(batch)) != files:
        manifest.batches.amend(batch, replace(done, files={**done.files, one.stage: listed}))


def _rename(manifest: Manifest, one: ArchiveInput, batch: int, seen: Seen | None) -> None:
    """An archive that has all that was read of another one in its place is that one, by another name."""
    done = manifest.batches.get(batch)
    if seen is None or done is None or done.inputs.get(one.stage) != seen.fingerprint:
        return
    if done.archives.get(one.stage, one.name) != one.name:
        manifest.batches.amend(batch, replace(done, archives={**done.archives, one.stage: one.name}))


def forget(announcements: Sequence[Location]) -> None:
    """Remove announcements; those that stay are seen again."""
    with contextlib.suppress(HeronError, OSError):
        if announcements:
            files_of(announcements[0]).delete(announcements)
