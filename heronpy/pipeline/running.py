"""A batch run: what is pending, computed group by group, each group made visible by one replacement of the manifest.

A run can be killed at any moment. What it had written is under versions that no manifest names: the next run removes
it, and computes what is pending still.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from heronpy.errors import HeronError, TopologyError
from heronpy.filesystem import files_of
from heronpy.pipeline._commit import commit, output_folders, output_windows
from heronpy.pipeline.changes import Found, find_changes, forget, program_of, remember
from heronpy.pipeline.computing import Batches, Needed, compute, cores, new_version
from heronpy.pipeline.damage import report_damage, report_lost
from heronpy.pipeline.exchange import PART_BYTES
from heronpy.pipeline.executors import check_places
from heronpy.pipeline.following import Following
from heronpy.pipeline.inputs import (
    ArchiveInput,
    archive_readings,
    damaged_batches,
    fingerprints,
    hurt_batches,
    listed,
    local_files,
    open_archives,
    sizes,
    source_readings,
    unread_files,
)
from heronpy.pipeline.intents import intend, settle, undo
from heronpy.pipeline.job import Job
from heronpy.pipeline.kept import Kept
from heronpy.pipeline.leftovers import find_leftovers, remove_leftovers
from heronpy.pipeline.letters import publish_letters
from heronpy.pipeline.manifest import Batch, Manifest, lock
from heronpy.pipeline.masters import check_request, check_shared
from heronpy.pipeline.partials import PartialsTask
from heronpy.pipeline.pending import (
    Work,
    can_carry,
    can_resume,
    carried_groups,
    committed_watermark,
    decide,
    grouped,
    renew,
    undone,
    unfinished,
)
from heronpy.pipeline.plan import BatchPlan, plan_batch
from heronpy.pipeline.progress import Progress
from heronpy.pipeline.reductions import STORED_STATES
from heronpy.pipeline.rollup import roll_up, views_to_roll_up
from heronpy.pipeline.run_report import RunReport
from heronpy.pipeline.session import check_packages, refusals_named, spark_session
from heronpy.pipeline.task import Report
from heronpy.streamlet.graph import SinkNode, StoreNode

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["RunReport", "run"]

_LAST = 2**40
"""After every batch id that there can be."""
_GROUP_BYTES = 2 * 1024**3
"""Input of one Spark job, if it has several batches …"""
_CORE_BYTES = 3 * PART_BYTES
"""… or so much for each core, if there are so many: all of them are to have something to do."""
_LARGE = ("archive/", "sinks/", STORED_STATES, "views/")
"""How the names of what is uploaded in parts begin."""


def run(
    job: Job,
    *,
    master: str = "local[*]",
    until_ms: int | None = None,
    batches: Collection[int] | None = None,
    accept_damage: bool = False,
    everything: bool = False,
    conf: Mapping[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Compute every batch that is complete and not done, or whose input has changed.

    Args:
        job: what to compute.
        master: Spark's master URL.
        until_ms: only batches that end by then, and not later than now; without it, as far as the archive is complete.
            Of sources that are read without an archive, also later ones that are done: these are read again as a whole.
        batches: compute these, also if they are done, and no others.
        accept_damage: compute batches of which a part of the input is damaged without it. What is accepted once stays
            so until the file changes.
        everything: look at all files of archives. Otherwise a run of a long history looks at what writers have
            announced, and at some more in turn: what somebody has changed by hand is found some runs later.
        conf: Spark's configuration.
        progress: called about twice a second while Spark works, from another thread.

    Raises:
        TopologyError: the program has a part that a batch job cannot do.
        AlreadyExistsError: another run works on the job's directory.
        DamagedInputError: input of some batches is damaged; all others are done. No file is moved or changed.
        UserCodeError: user code failed, or raised for more than a tenth of the elements; nothing of that Spark job
            counts.
        UsageError: executors are on other machines, and files in directories of this one; or there is no such master.
        UnavailableError: there is no Java, or no Spark; no executor comes, or one cannot work.
        HeronError: a file cannot be read or written now; what was done before stays done.
    """
    check_packages()
    check_request(master, conf or {}, job.places())
    try:
        plan = plan_batch(job)
        with lock(job.directory) as confirm:
            running = _Run(job, plan, master, dict(conf or {}), progress, confirm, accept_damage=accept_damage)
            return running.run(until_ms, batches, everything=everything)
    except pickle.PicklingError as error:  # also for lack of memory
        raise HeronError(f"the program cannot be sent to Spark's tasks: {error}; nothing was replaced") from error
    except OSError as error:
        raise HeronError(f"the files of {job.name} cannot be read or written: {error}") from error


class _Run:
    def __init__(
        self,
        job: Job,
        plan: BatchPlan,
        master: str,
        conf: dict[str, str],
        progress: Callable[[Progress], None] | None,
        confirm: Callable[[], None],
        *,
        accept_damage: bool,
    ) -> None:
        self._job, self._plan = job, plan
        self._accept_damage = accept_damage
        self._master, self._conf, self._progress = master, conf, progress
        self._manifest = Manifest.load(job.directory, job.batch_length_ms)
        _refuse_stopped(plan, self._manifest)
        leftovers = find_leftovers(job, self._manifest, thorough=bool(plan.sources()))
        confirm()
        self._manifest.claim(job.directory)  # what other runs have left counts no more from now on
        publish_letters(job.directory, self._manifest)
        remove_leftovers(leftovers)
        files_of(job.directory).remove_torn(job.directory, _LARGE)
        self._manifest.garbage = []
        self._held = contextlib.ExitStack()
        self._context: SparkContext | None = None
        self._kept, self._following = Kept(job, self._manifest), Following(job, self._manifest)
        self._report = RunReport(job.name, job.batch_length_ms, notes=list(plan.notes))
        self._archives: list[ArchiveInput] = []
        self._views = {name: node.monoid.signature for name, node in plan.stores().items()}
        self._has_looked_at_all = False
        self._sinks = [node.stage for node in self._outputs() if isinstance(node, SinkNode)]
        self._carried_lookback = self._in_batches(plan.carried().lookback_ms) if plan.can_carry else None
        self._not_carried: set[int] = set()
        """Batches that turned out to be computed from their archive."""
        self._looks_at_few = self._carried_lookback is not None and not plan.is_nested
        """Whether what follows from a changed batch is looked for by its keys: see `Following`."""
        self._reopened: set[int] = set()
        """Batches to compute in any case: before them other sessions turned out to be open."""
        self._looks_again = False
        """Whether what a Spark job has made counts for nothing, as more is to be computed with it."""
        self._reads_all = False
        """Whether sessions are computed from the beginning: not all is done that they would go on from."""
        rolled_up = plan.nodes.keys() - plan.opens.values()
        self._rolled_up = {view: node for view, node in plan.stores().items() if node.stage in rolled_up}

    def run(self, until_ms: int | None, batches: Collection[int] | None, *, everything: bool) -> RunReport:
        began = time.monotonic()
        if until_ms is not None:
            # A batch that has not ended cannot be done: reads would leave out what is live in it.
            until_ms = min(until_ms, _now_ms())
        with self._held:
            if self._plan.sources():
                self._archives = open_archives(self._job, self._plan)
                self._everything(until_ms)
            else:
                while not self._pending(until_ms, batches, everything=everything):
                    pass  # each time it is known of more batches that they are to be computed, or from their archive
        self._report.committed_watermark = self._manifest.committed_watermark
        self._report.notes = list(dict.fromkeys(self._report.notes))
        self._report.input_bytes = self._archived_bytes()
        self._report.seconds = time.monotonic() - began
        report_damage(self._report)
        return self._report

    def _pending(self, until_ms: int | None, batches: Collection[int] | None, *, everything: bool) -> bool:
        """All input is in archives: compute what is pending. False: there is more, after another look at archives."""
        manifest, lookback = self._manifest, self._in_batches(self._lookback_ms)
        everything |= self._reads_all or (lookback is None and not self._plan.kept)  # however little is new
        if batches is not None:
            batches = {*batches}.difference(self._report.batches)
        reach = -(-self._plan.reach_ms // self._job.batch_length_ms)
        span = None if lookback is None else max(lookback, reach)
        before = _noted(manifest)
        few = self._looks_at_few and lookback is None and manifest.is_settled and not (batches or everything)
        found = find_changes(
            self._job,
            self._plan,
            manifest,
            until_ms=until_ms,
            span=span,
            back=self._in_batches(self._plan.resumed().lookback_ms) or 0,
            only={*(batches or ()), *self._reopened},
            everything=everything,
            carried_span=self._carried_lookback if lookback is None else None,
            also=self._not_carried,
            few_span=max(self._carried_lookback or 0, reach) if few else None,
        )
        few = few and found.affected is not None
        self._has_looked_at_all = found.affected is None
        self._archives = found.archives
        inputs, input_sizes = fingerprints(self._archives, manifest.unread), sizes(self._archives)
        views, sinks = self._views, self._sinks
        work = decide(
            manifest,
            {**self._assumed(found, reach), **inputs},
            archives={one.stage: one.name for one in self._archives},
            closable=found.closable,
            lookback=lookback,
            reach=reach,
            views=views,
            sinks=sinks,
            windows=output_windows(self._plan),
            only=batches,
            also=self._reopened,
            among=found.affected,
            looked_at=found.looked_at(),
            hurt=hurt_batches(self._archives, inputs, manifest.batches),
            carried_lookback=self._carried_lookback,
            few=few,
        )
        if few and not self._is_plain(found, work):
            return self._look_at_all()
        found.dirty.update(work.orphaned)
        work.carried -= self._not_carried
        work.carries = self._carried_lookback is not None and lookback is None
        if work.carries and not can_carry(manifest, work, views, sinks, is_nested=self._plan.is_nested):
            if not self._has_looked_at_all:
                return self._pending(until_ms, batches, everything=True)
            work.carries = False
        if not work.carries:
            work.carried.clear()
        elif (looked_at := found.looked_at()) is not None:
            unseen = {*work.pending} - work.carried - self._not_carried - looked_at
            self._not_carried |= unseen
            if unseen:
                return False
        report_lost(self._job, manifest, views, work, self._report, self._lookback_ms)
        self._block(work, lookback)
        # Before any batch is done: what is not yet must be known when a part of it is, and this run dies.
        left = undone(manifest, work, found.dirty, span, reach, views, sinks)
        remember(manifest, found, program_of(self._plan, span), left)
        manifest.is_settled = few or (manifest.is_settled and not work.pending)
        if self._compute(work, lookback, input_sizes):
            return False
        found.dirty |= work.reopened
        if lookback is None:
            later = next(manifest.batches.between(found.closable + 1, None), None)
            manifest.is_settled = later is None and not unfinished(manifest, work, views, sinks)
        self._report.blocked = work.blocked
        manifest.todo = undone(manifest, work, found.dirty, span, reach, views, sinks)
        upto = committed_watermark(manifest, work, ())
        if upto != manifest.committed_watermark and (work.fingerprints or len(manifest.batches)):
            manifest.committed_watermark = upto
            manifest.save(self._job.directory)
        elif manifest.batches.changed or (before != _noted(manifest) and any(manifest.batches.segments())):
            manifest.save(self._job.directory)
        forget(found.announcements)
        return True

    def _assumed(self, found: Found, reach: int) -> dict[int, dict[str, str]]:
        """What batches were computed from that were not looked at, although they, or others, follow from changed ones.

        Args:
            found: what was looked at.
            reach: how many batches after it an element can be seen in: into some without input of their own.
        """
        if found.affected is None or not isinstance(found.affected, range):
            return {}
        looked_at, stages = found.looked_at() or (), {one.stage for one in found.archives}
        return {
            batch: {stage: what for stage, what in done.inputs.items() if stage in stages}
            for batch, done in self._manifest.batches.between(found.affected.start - reach, found.affected.stop - 1)
            if batch not in looked_at and not stages.isdisjoint(done.inputs)
        }

    def _grouped(self, work: Work, lookback: int | None, sizes: Mapping[int, int], group_bytes: int) -> list[list[int]]:
        if not work.carries:
            # What is computed from everything goes on from what was kept of all batches before its group.
            return grouped(work.pending, sizes, group_bytes, self._between(work, lookback))
        kept = {batch: self._kept.partials_bytes(batch) for batch in work.carried}
        return carried_groups(work, {**sizes, **kept}, group_bytes, is_nested=self._plan.is_nested)

    def _between(self, work: Work, lookback: int | None) -> Collection[int]:
        """Batches that are not computed, and keep those around them out of one group."""
        if not self._plan.opens:
            return work.fingerprints if lookback is None else ()
        batches = self._manifest.batches
        gaps = itertools.pairwise(work.pending)
        first = (next(batches.between(a + 1, b - 1), None) for a, b in gaps if b > a + 1)
        return {*work.fingerprints, *(found[0] for found in first if found is not None)}

    def _divided(self, batch: int) -> int:
        """Among how many parts the keys of its views are divided."""
        return max((parts.divided for parts in self._manifest.batches[batch].views.values()), default=1)

    def _compute(self, work: Work, lookback: int | None, input_sizes: Mapping[int, int]) -> bool:
        """Compute what is pending, group by group, and roll up. True: some of it is to be computed from its archive."""
        if not work.pending and not views_to_roll_up(self._job, self._manifest, self._rolled_up):
            return False
        sc = self._spark()
        group_bytes = max(_GROUP_BYTES, cores(sc) * _CORE_BYTES)
        work.groups = self._grouped(work, lookback, input_sizes, group_bytes)
        while work.groups:
            group = work.groups[0]
            left = [batch for one in work.groups[1:] for batch in one]
            self._looks_again = False
            if self._group(sc, work, group, left, lookback, input_sizes, group_bytes):
                work.groups.remove(group)
            elif self._looks_again or (work.few and not self._looks_at_few):
                return True
            elif self._not_carried.isdisjoint(work.carried):
                self._block(work, lookback)
            else:
                return True
        roll_up(sc, self._job, self._rolled_up, self._manifest, self._progress)
        return False

    @property
    def _lookback_ms(self) -> int | None:
        """How long before a batch what is read of archives begins; None: it depends on all batches before.

        With open sessions it begins where these end. Whether those are others is known when their batch is computed.
        """
        plan = self._plan
        return plan.resumed().lookback_ms if plan.opens and not plan.partials else plan.lookback_ms

    def _in_batches(self, lookback_ms: int | None) -> int | None:
        return None if lookback_ms is None else -(-lookback_ms // self._job.batch_length_ms)

    def _archived_bytes(self) -> int:
        batches = set(self._report.batches)
        found = [one.found.get(batch) for one in self._archives for batch in batches]
        return sum(seen.bytes for seen in found if seen is not None)

    def _block(self, work: Work, lookback: int | None) -> None:
        """Leave out what would be computed from damaged input, unless that is accepted."""
        self._report.damaged = damaged_batches(self._archives, self._manifest.unread)
        if not self._accept_damage:
            work.block(self._report.damaged, lookback)
            if self._plan.opens:
                work.block(work.blocked, None)  # the open sessions before all later ones are not known

    def _group(
        self,
        sc: SparkContext,
        work: Work,
        group: Sequence[int],
        left: Sequence[int],
        lookback: int | None,
        input_sizes: Mapping[int, int],
        group_bytes: int,
    ) -> bool:
        """Compute some batches. False: nothing of it counts.

        Their input turned out to be damaged; or user code raised where batches were carried: they are not from now on.
        Or it is not known which of those that were not looked at follow from them: all are looked at from now on. Or
        other sessions are open at their end: later ones are computed with them.
        """
        # What is damaged is read by none of them, or they would be blocked.
        damaged = frozenset() if self._accept_damage else frozenset(self._report.damaged)
        plan = self._plan
        kept: list[PartialsTask] = []
        carried = work.carried.intersection(group)
        if work.carries:
            plan = plan.carried()
            kept = self._kept.tasks(plan, group, cores(sc), {*group} - carried)
        elif plan.kept and can_resume(self._manifest, work, group, self._views, self._sinks):
            plan = plan.resumed()
            kept = self._kept.tasks(plan, group, cores(sc))
        elif plan.opens and not self._has_looked_at_all:
            self._reads_all = self._looks_again = True
            return False
        back = self._in_batches(plan.lookback_ms)
        assert back is not None or self._has_looked_at_all, "the reduction would not begin with all that there is"
        read = Batches(None, max(group), damaged) if back is None else Needed({*group} - carried, back, damaged)
        readings = archive_readings(self._archives, read, cores(sc))
        version = new_version()
        note = intend(self._job.directory, version, output_folders(self._plan), group)
        report, _ = compute(
            sc,
            self._job,
            plan,
            self._archives,
            [*kept, *readings],
            read,
            wanted=frozenset(group),
            last=max(group),
            batch_bytes={batch: input_sizes.get(batch, 0) for batch in group if batch not in carried},
            total_bytes=sum(size for batch, size in input_sizes.items() if batch in read)
            + sum(self._kept.partials_bytes(batch) for batch in carried)
            + self._kept.sessions_bytes(plan, group),
            version=version,
            carried={batch: self._divided(batch) for batch in carried},
            progress=self._progress,
        )
        if any(report.failed[batch] for batch in carried):
            self._not_carried |= carried
            return False
        if unread := unread_files(self._archives, report.malformed_in):
            self._manifest.unread |= unread
            if work.few:
                return self._look_at_all()
            if not self._accept_damage:
                self._manifest.save(self._job.directory)  # so that the next run need not find it
                return False
            renew(work, fingerprints(self._archives, self._manifest.unread), lookback, self._carried_lookback)
        if self._accept_damage:
            known = damaged_batches(self._archives, self._manifest.unread)
            self._report.damaged = known | work.lacking(known, group, lookback)
        unchanged: set[int] = set()
        followers: dict[int, Batch] = {}
        if self._plan.opens:
            followers = self._following.reopened(self._plan.resumed(), report, group)
            if not followers.keys() <= {*left, *self._reopened}:
                # With as many more, so that many are computed in few jobs. Nobody sees a part of it.
                after = itertools.islice(self._manifest.batches.between(max(group) + 1, None), len(group))
                self._reopened |= {*followers, *(batch for batch, _ in after)}
                self._looks_again = True
                undo(self._job.directory, note, report)
                return False
            work.reopened |= followers.keys()
            self._manifest.todo = sorted({*self._manifest.todo, *followers})
        elif work.few and not carried.issuperset(group):
            found = self._following.followers(work, plan, report, group, left)
            if found is None:
                return self._look_at_all()
            followers = found
            unchanged = work.settled.intersection(left).difference(found) if work.carried.issuperset(left) else set()
            self._manifest.is_settled = work.carried.issuperset(left)
            self._manifest.todo = sorted({*self._manifest.todo, *followers})
        elif work.carries and not work.few:
            unchanged = self._following.unchanged(work, plan, report, group, left)
        commit(
            self._job,
            self._plan,
            self._manifest,
            report,
            version,
            {batch: work.fingerprints[batch] for batch in group},
            work.inputs,
            listed=listed(self._archives, group),
            damaged=self._report.damaged,
            direct=work.direct,
            carried=carried,
            unchanged={batch: work.fingerprints[batch] for batch in unchanged},
            passed_on=work.passed_on if work.few and work.carried.issuperset(left) else {},
            followers=followers,
            committed_watermark=lambda: committed_watermark(self._manifest, work, {*left} - unchanged),
        )
        settle(note)
        work.leave(unchanged)
        self._reopened.difference_update(group)
        if not self._plan.opens:
            work.follow(more := {batch: done for batch, done in followers.items() if batch not in left})
            work.groups += grouped(
                sorted(more), {batch: self._kept.partials_bytes(batch) for batch in more}, group_bytes
            )
        self._add(report, group)
        self._report.carried = sorted({*self._report.carried, *carried} - ({*group} - carried))
        return True

    def _is_plain(self, found: Found, work: Work) -> bool:
        """Whether nothing but new and late files has happened: then few batches tell what is to be done."""
        manifest = self._manifest
        return (
            not (work.lost or work.hurt or work.orphaned or self._not_carried)
            and not damaged_batches(self._archives, manifest.unread)
            and next(manifest.batches.between(found.closable + 1, None), None) is None
            and can_carry(manifest, work, self._views, self._sinks, is_nested=False)
        )

    def _look_at_all(self) -> bool:
        """Look at all batches after those that have changed, from the next look at archives on."""
        self._looks_at_few = False
        self._following.clear()
        return False

    def _everything(self, until_ms: int | None) -> None:
        """Some input is read from its source, which does not say what is new: compute all batches.

        Also those after the last that is asked for, if they are done: results of two readings do not fit together.
        """
        length, before = self._job.batch_length_ms, self._manifest.committed_watermark
        wanted = _LAST if until_ms is None else until_ms // length - 1
        last = max([wanted, *self._manifest.batches])
        self._refuse_damage()
        sc = self._spark()
        readings, total = source_readings(self._plan.sources(), cores(sc))
        check_shared(str(sc.master), self._conf, local_files(readings))
        files = archive_readings(self._archives, Batches(None, last), cores(sc))
        total += sum(size for batch, size in sizes(self._archives).items() if batch <= last)
        report, version = compute(
            sc,
            self._job,
            self._plan,
            self._archives,
            readings + files,
            Batches(None, last),
            wanted=None,
            last=last,
            batch_bytes={},
            total_bytes=total,
            progress=self._progress,
        )
        self._manifest.unread |= unread_files(self._archives, report.malformed_in)
        self._refuse_damage()
        found = sorted({part.batch for part in report.parts})
        for batch in list(self._manifest.batches):
            del self._manifest.batches[batch]
        self._manifest.program = ""  # nothing of it was computed from what archives had
        # Events of the future do not end what is live now; what is not any more does not become so again.
        ended = [wanted] if until_ms is not None else [b for b in found if b <= _now_ms() // length]
        upto = max([*ended, *([] if before is None else [before])], default=None)
        commit(
            self._job,
            self._plan,
            self._manifest,
            report,
            version,
            dict.fromkeys(found, version),
            {},
            listed={},
            damaged=self._report.damaged,
            direct={},
            carried=(),
            unchanged={},
            passed_on={},
            followers=(),
            committed_watermark=lambda: upto,
            all_anew=True,
        )
        self._add(report, found)
        roll_up(sc, self._job, self._rolled_up, self._manifest, self._progress)

    def _refuse_damage(self) -> None:
        """Where all batches are computed together, damage in one is damage in all.

        Raises:
            DamagedInputError: input is damaged, and that is not accepted.
        """
        self._report.damaged = damaged_batches(self._archives, self._manifest.unread)
        if not self._accept_damage:
            self._report.blocked = sorted(self._report.damaged)
            report_damage(self._report)

    def _add(self, report: Report, batches: Sequence[int]) -> None:
        total = self._report
        total.batches = sorted({*total.batches, *batches})
        total.elements += sum(report.elements.values())
        total.duplicates += sum(report.duplicates.values())
        total.dead_letters += sum(report.failed.values()) + report.malformed
        for part in report.parts:
            if part.stage in self._plan.kept.values():
                continue
            node = self._plan.nodes[part.stage]
            name = node.store_name if isinstance(node, StoreNode) else part.stage
            total.rows[name] = total.rows.get(name, 0) + part.rows

    def _outputs(self) -> list[Any]:
        return [self._plan.nodes[name] for name in self._plan.outputs]

    def _spark(self) -> SparkContext:
        """Spark, started when it is needed first; it ends with the run."""
        if self._context is None:
            session = spark_session(f"heronpy {self._job.name}", self._master, self._conf)
            self._context = self._held.enter_context(session).sparkContext
            self._held.enter_context(refusals_named())
            check_places(self._context, self._conf, self._job.places().values())
        return self._context


def _refuse_stopped(plan: BatchPlan, manifest: Manifest) -> None:
    """Refuse to go on without a view that batches have: what is live of it would no longer be that after them.

    Raises:
        TopologyError: the program has such a view; says why it cannot be computed any more.
    """
    for view, why in plan.left_out.items():
        if manifest.newest_has(view):
            raise TopologyError(f"{why}; batches that are done have the view {view}: give it another name to go on")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _noted(manifest: Manifest) -> Any:
    """What a run that computes nothing may change."""
    return msgspec.to_builtins(
        (manifest.unread, manifest.todo, manifest.program, manifest.checked, manifest.is_settled)
    )
