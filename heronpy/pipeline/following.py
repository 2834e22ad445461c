"""Which batches follow from those that a run computes again: late values are in their results, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heronpy.pipeline.carrying import Occurrences, affected, changed_keys, has_changed
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Batch, Manifest
from heronpy.pipeline.pending import Work
from heronpy.pipeline.plan import BatchPlan
from heronpy.pipeline.task import Report


class Following:
    """What follows from what a run has changed so far."""

    def __init__(self, job: Job, manifest: Manifest) -> None:
        """Nothing is changed yet.

        Args:
            job: what is computed.
            manifest: what is done, before each group of batches that is computed.
        """
        self._job, self._manifest = job, manifest
        self._changed: dict[str, set[Any] | None] = {}
        """Keys that have another value in what a reduction keeps, by its view; None: too many."""

    def clear(self) -> None:
        """Take nothing for changed: all batches are looked at from now on."""
        self._changed.clear()

    def unchanged(
        self, work: Work, plan: BatchPlan, report: Report, group: Sequence[int], left: Sequence[int]
    ) -> set[int]:
        """Batches to carry whose results are as they were: in none that they follow from does a changed key occur.

        Args:
            work: what is pending.
            plan: what is computed.
            report: of the Spark job that has computed a group.
            group: its batches.
            left: those of the groups after it.
        """
        computed = {*work.pending} - work.carried
        # What a run before this one has changed, which died, is not known. What is carried is looked for once, before.
        if plan.is_nested or not computed or work.carried.isdisjoint(left) or work.carried.issuperset(group):
            return set()
        last = max(work.carried)
        self._note_changed(plan, report, [batch for batch in group if batch < last])
        carried = sorted(work.carried.intersection(left))
        if len(carried) < len(left) or None in self._changed.values():
            return set()  # others are computed before them
        occurring = self._occurring(min(computed), last)
        return work.settled.intersection(carried) - affected(carried, occurring, computed, self._back(plan))

    def followers(
        self, work: Work, plan: BatchPlan, report: Report, group: Sequence[int], left: Sequence[int]
    ) -> dict[int, Batch] | None:
        """Batches that are done, with other results now: what they follow from has changed keys. None: not known.

        Args:
            work: what is pending.
            plan: what is computed.
            report: of the Spark job that has computed a group.
            group: its batches.
            left: those of the groups after it.
        """
        manifest, computed = self._manifest, {*work.pending} - work.carried
        last = next(reversed(manifest.batches), None)
        before = [] if last is None else sorted(batch for batch in computed if batch < last)
        if last is None or not before:
            return {}
        self._note_changed(plan, report, [batch for batch in group if batch < last])
        if None in self._changed.values():
            return None
        if not work.carried.issuperset(left):
            return {}  # others are computed before them
        changed, back = {*before, *self._occurring(before[0], last)}, self._back(plan)
        following = sorted({batch + i for batch in changed for i in range(back + 1)} - computed)
        found = {batch: done for batch in following if (done := manifest.batches.get(batch)) is not None}
        known = (done.direct and done.fingerprint and not done.refused and not done.damaged for done in found.values())
        return found if all(known) else None

    def reopened(self, plan: BatchPlan, report: Report, group: Sequence[int]) -> dict[int, Batch]:
        """Batches that are done, after some that were computed, if other sessions are open before them now.

        Args:
            plan: what is computed from, with open sessions.
            report: of the Spark job that has computed a group.
            group: its batches.
        """
        batches, last = self._manifest.batches, max(group)
        if (after := next(batches.between(last + 1, None), None)) is None:
            return {}
        back = max(-(-(plan.back_ms[stage] or 0) // self._job.batch_length_ms) for stage in plan.opens)
        ends = [batch for batch in group if batch >= last - back]
        kept = [(plan.stored(output).store_name, output) for output in plan.opens.values()]
        for view, output in kept:
            for batch in ends:
                parts = [part for part in report.parts if part.stage == output and part.batch == batch]
                if has_changed(self._job.directory, self._manifest, view, parts, batch):
                    return dict(batches.between(last + 1, after[0] + back))
        return {}

    def _note_changed(self, plan: BatchPlan, report: Report, batches: Sequence[int]) -> None:
        """Note which keys have another value in batches that were computed."""
        for output in plan.partials.values():
            view = plan.stored(output).store_name
            before, parts = self._changed.get(view, set()), [part for part in report.parts if part.stage == output]
            found = changed_keys(self._job.directory, self._manifest, view, parts, batches)
            self._changed[view] = None if before is None or found is None else before | found

    def _occurring(self, first: int, last: int) -> set[int]:
        """The batches from one to another in which keys occur that have another value."""
        found: set[int] = set()
        for view, keys in self._changed.items():
            if keys:
                found |= Occurrences(self._job.directory, self._manifest, view, keys).between(first, last)
        return found

    def _back(self, plan: BatchPlan) -> int:
        """How many batches before it results of reductions are read for a batch."""
        return max(-(-(plan.back_ms[stage] or 0) // self._job.batch_length_ms) for stage in plan.partials)
