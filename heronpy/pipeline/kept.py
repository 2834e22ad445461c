"""What reductions and sessions have kept of batches that are done, as a run reads it."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass

from heronpy.errors import StateError
from heronpy.filesystem import Location
from heronpy.pipeline.batch import KEPT, TIER_BATCHES
from heronpy.pipeline.batch_times import batch_name
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Batch, Manifest
from heronpy.pipeline.partials import Partials, PartialsTask, partials_tasks
from heronpy.pipeline.plan import BatchPlan
from heronpy.pipeline.views import batch_files, view_files

_ROW_BYTES = 128
"""In memory, of what a reduction has kept: about."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a job, by a manifest that the run changes as it goes on."""

    job: Job
    manifest: Manifest

    def tasks(
        self, plan: BatchPlan, group: Collection[int], cores: int, read: Container[int] = ()
    ) -> list[PartialsTask]:
        """Tasks that read what reductions and sessions have kept.

        Args:
            plan: what is computed.
            group: the batches that are.
            cores: so many tasks.
            read: batches whose elements are read.

        Raises:
            StateError: sessions go on from some of which nothing is kept.
        """
        tasks: list[PartialsTask] = []
        directory, manifest, length_ms = self.job.directory, self.manifest, self.job.batch_length_ms
        for stage, output in plan.partials.items():
            node, begins = plan.stored(output), plan.begins(stage, min(group))
            assert begins is not None, stage
            files: list[tuple[int | None, Location]]
            files = [(None, path) for path in view_files(directory, node.store_name, manifest, begins - 1)]
            if plan.is_carried and plan.is_first(stage):
                files += self._partials(plan, node.store_name, begins, group, read)
            assert isinstance(node.monoid, Partials)
            tasks += partials_tasks(stage, files, cores, length_ms, timed=node.monoid.timed)
        for stage, output in plan.opens.items():
            if (before := self._open_before(plan, stage, group)) is not None:
                view = plan.stored(output).store_name
                files = [(None, path) for path in batch_files(directory, view, *before)]
                tasks += partials_tasks(stage, files, cores, length_ms, timed=False)
        return tasks

    def partials_bytes(self, batch: int) -> int:
        """About as much in memory as what reductions have kept of a batch."""
        views = self.manifest.batches[batch].views
        return sum(_ROW_BYTES * parts.rows for view, parts in views.items() if view.startswith(KEPT))

    def sessions_bytes(self, plan: BatchPlan, group: Collection[int]) -> int:
        """About as much in memory as the sessions that are open before a group."""
        if not plan.is_resumed:
            return 0
        found = [(stage, self._open_before(plan, stage, group)) for stage in plan.opens]
        views = [done.views[plan.stored(plan.opens[stage]).store_name] for stage, at in found if at for done in at[1:]]
        return sum(_ROW_BYTES * parts.rows for parts in views)

    def _partials(
        self, plan: BatchPlan, view: str, begins: int, group: Collection[int], read: Container[int]
    ) -> Iterator[tuple[int, Location]]:
        """Files of what is kept of batches that are computed, or looked back at; of others between, as few as can be.

        The latter count as of the last batch there: they are in all results after it, and none of that is read.
        """
        directory, manifest, back = self.job.directory, self.manifest, min(group) - begins
        needed = {n for batch in group for n in range(batch - back, batch + 1)}
        if plan.is_nested:  # results of all batches are reduced again
            needed.update(n for n, _ in manifest.batches.between(begins, max(group)))
        at = begins
        for n in sorted(needed):
            if n - at > TIER_BATCHES:
                yield from ((n - 1, path) for path in view_files(directory, view, manifest, n - 1, first=at))
                at = n
            for batch in range(at, n + 1):
                done = manifest.batches.get(batch)
                if done is not None and view in done.views and batch not in read:
                    yield from ((batch, path) for path in batch_files(directory, view, batch, done))
            at = n + 1

    def _open_before(self, plan: BatchPlan, stage: str, group: Collection[int]) -> tuple[int, Batch] | None:
        """The last batch before all whose elements are read for sessions; None: there is none.

        Raises:
            StateError: nothing is kept of it.
        """
        begins, node = plan.begins(stage, min(group)), plan.stored(plan.opens[stage])
        assert begins is not None, stage
        view, signature, length_ms = node.store_name, node.monoid.signature, self.job.batch_length_ms
        for batch, done in self.manifest.batches.before(begins):
            if view in done.views and done.monoids.get(view, signature) == signature:
                return batch, done
            if done.inputs:  # others are not computed any more if gaps are shorter now: nothing reaches into them
                raise StateError(
                    f"batch {batch_name(min(group), length_ms)} cannot be computed: its sessions go on from those open "
                    f"at the end of batch {batch_name(batch, length_ms)}, which are not known, and the archive has "
                    "lost rows of that; put them back"
                )
        return None
