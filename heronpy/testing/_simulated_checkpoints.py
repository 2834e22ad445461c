"""Checkpoints of a simulated topology, in memory: the real snapshots of its tasks, without anybody who coordinates.

All tasks stop between two batches, so a snapshot of each and what is on its way between them is a consistent cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heronpy.checkpoints import (
    NOTHING_SAVED,
    BytesSource,
    ComponentEntry,
    Manifest,
    ObjectReader,
    ObjectRef,
    Saved,
    compact,
    next_manifest,
    read_saved,
    should_compact,
)
from heronpy.errors import CheckpointError
from heronpy.instance.checkpoints import Snapshots
from heronpy.plan import PhysicalPlan
from heronpy.proto import stmgr_pb2

OnTheirWay = Mapping[int, tuple[stmgr_pb2.Batch, ...]]
"""Batches by the task that they go to."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is committed."""

    id: int
    manifest: Manifest | None
    on_their_way: OnTheirWay


class SimulatedCheckpoints:
    """The newest committed checkpoint, and what comes after it."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self.plan = plan
        """How the topology runs now."""
        self.epoch = 1
        """The restore epoch."""
        self.committed = Checkpoint(0, None, {})
        self._last = 0
        self._objects: dict[str, bytes] = {}
        self._refs: list[ObjectRef] = []
        self.failure: str | None = None
        """Why what is being taken cannot be saved."""

    def saved(self, task_id: int) -> Saved:
        """What the newest committed one has of a task."""
        if self.committed.manifest is None:
            return NOTHING_SAVED
        component = self.plan.tasks[task_id][1].component
        tasks = self.plan.component_tasks[component]
        return read_saved(self.committed.manifest, component, tasks.index(task_id), len(tasks), self._opened)

    def take(self, snapshots: Iterable[Snapshots]) -> int:
        """Have every task take its snapshot; its id.

        Raises:
            CheckpointError: a state cannot be saved. The checkpoint is aborted.
        """
        self._last += 1
        self._refs, self.failure = [], None
        taken = list(snapshots)
        for each in taken:
            each.take(self._last)
        for each in taken:
            while each.write():
                pass
        if self.failure is not None:
            for each in taken:
                each.abort(self._last)
            raise CheckpointError(self.failure)
        return self._last

    def commit(self, on_their_way: OnTheirWay) -> None:
        """Have what was taken last for the newest; no task is notified."""
        previous, components = self.committed.manifest, {}
        if previous is not None:
            components = previous.components
        components = components | {ref.component: ComponentEntry(ref.tasks, ref.generation) for ref in self._refs}
        manifest = previous
        if self._refs:
            taken = Manifest(
                topology_id=self.plan.logical.id,
                checkpoint_id=self._last,
                epoch=self.epoch,
                groups=self.plan.logical.key_groups,
                components=components,
                objects=tuple(self._refs),
            )
            manifest = self._compacted(next_manifest(previous, taken))
            self._objects = {name: self._objects[name] for name in manifest.names}
        self.committed = Checkpoint(self._last, manifest, on_their_way)

    def add(self, ref: ObjectRef, data: bytes) -> None:
        """Keep an object of the checkpoint that is being taken."""
        self._objects[ref.name] = data
        self._refs.append(ref)

    def _compacted(self, manifest: Manifest) -> Manifest:
        merged = []
        for component, entry in manifest.components.items():
            for index in range(entry.tasks):
                if should_compact(manifest, component, index):
                    data = bytearray()
                    for pieces, ref in compact(manifest, component, index, self.epoch, self._opened):
                        data += b"".join(pieces)
                        if ref is not None:
                            self._objects[ref.name] = bytes(data)
                            merged.append(ref)
        return next_manifest(None, manifest, merged) if merged else manifest

    def _opened(self, ref: ObjectRef) -> ObjectReader:
        return ObjectReader(BytesSource(ref.name, self._objects[ref.name]))


class Reports:
    """What one task's snapshots are reported to."""

    unsaved_bytes = 0

    def __init__(self, checkpoints: SimulatedCheckpoints) -> None:
        self._checkpoints = checkpoints
        self._pieces: list[bytes] = []

    def taken(self, checkpoint: int, begun: int, name: str, undivided: str, whole: bool) -> None:
        self._pieces = []

    def written(self, checkpoint: int, pieces: list[bytes], ref: ObjectRef | None) -> None:
        self._pieces += pieces
        if ref is not None:
            self._checkpoints.add(ref, b"".join(self._pieces))

    def failed(self, checkpoint: int, reason: str, *, lasting: bool = False) -> None:
        self._checkpoints.failure = reason

    def committed(self, checkpoint: int) -> None:
        pass
