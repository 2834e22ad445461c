"""The storage of checkpoints in a simulated cluster, and what is promised of what is committed: exact counts."""

from __future__ import annotations

import marshal
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from heronpy.instance.checkpoints import InputBatch
from heronpy.proto import state_pb2
from heronpy.testing.simulation._programs import CYCLE, Broken
from heronpy.tmaster.checkpoints import ManifestFailed, ManifestWritten, WriteManifest

FAIL_SHARE = 0.02
"""How many calls fail."""
Item = tuple[int, int, str]
"""Task of the source, a number, and which of the tuples that are made of it."""
Counts = Counter[tuple[int, Item]]
"""How often each task has executed each item."""


@dataclass(frozen=True)
class TaskSnapshot:
    """What is stored of one task."""

    position: int
    counts: Counter[Item]
    log: tuple[InputBatch, ...]


def encoded(item: Item) -> bytes:
    """The body of a batch with one item."""
    return marshal.dumps(item)


def decoded(body: bytes) -> Item:
    """The item in the body of a batch."""
    source, number, branch = marshal.loads(body)
    return source, number, branch


class Storage:
    """Snapshots, manifests and commits, over all incarnations of everybody."""

    def __init__(self, kind: str, tasks: Mapping[str, list[int]]) -> None:
        """Make an empty storage.

        Args:
            kind: Of the topology.
            tasks: Of each component.
        """
        self.kind, self.tasks = kind, tasks
        self._snapshots: dict[tuple[int, int], TaskSnapshot] = {}
        self._manifests: set[int] = set()
        self.commits: dict[int, int] = {}
        """The restore epoch in which each was committed."""
        self._announced = 0
        self._restored: dict[int, int] = {}

    # what a topology makes of a number

    def first(self, source: int, number: int) -> tuple[int, Item]:
        """Where a source sends a number, and as what."""
        if number % 3 == 0:
            return self._task("sink", number), (source, number, "mark")
        return self._task("relay", number), (source, number, "copy")

    def follows(self, item: Item) -> Iterator[tuple[int, Item]]:
        """What a relay makes of an item, and for whom."""
        source, number, branch = item
        if branch == "copy":
            for part in range(2):
                yield self._task("sink", number + part), (source, number, f"relay {part}")
            if self.kind == CYCLE:
                yield self._task("relay", number + 1), (source, number, "again")
        elif branch == "again":
            yield self._task("sink", number), (source, number, "done")

    def _task(self, component: str, number: int) -> int:
        tasks = self.tasks[component]
        return tasks[number % len(tasks)]

    def _closure(self, counts: Counts, task: int, item: Item) -> None:
        counts[task, item] += 1
        if task in self.tasks["relay"]:
            for dest, made in self.follows(item):
                self._closure(counts, dest, made)

    def expected(self, positions: Mapping[int, int]) -> Counts:
        """What all tasks have executed when everything is done that follows from the sources' first numbers."""
        counts: Counts = Counter()
        for source, position in positions.items():
            for number in range(position):
                self._closure(counts, *self.first(source, number))
        return counts

    # what is stored

    def save(self, task: int, checkpoint: int, snapshot: TaskSnapshot) -> None:
        self._snapshots[task, checkpoint] = snapshot

    def write_manifest(
        self, effect: WriteManifest, rng: random.Random
    ) -> Callable[[float], ManifestWritten | ManifestFailed]:
        """Store a manifest, mostly; the answer, by its time."""
        id, epoch = effect.checkpoint, effect.epoch
        if rng.random() >= FAIL_SHARE:
            self._manifests.add(id)
            if rng.random() >= FAIL_SHARE:
                return lambda now_s: ManifestWritten(id, epoch, now_s)
        return lambda now_s: ManifestFailed(id, epoch, "the storage does not answer", now_s)

    def discard(self, keep: tuple[int, ...], before: int) -> None:
        """Delete checkpoints."""
        self._manifests = {id for id in self._manifests if id >= before or id in keep}
        for task, id in list(self._snapshots):
            if id < before and id not in keep:
                del self._snapshots[task, id]

    def restored(self, task: int, epoch: int, checkpoint: int) -> TaskSnapshot:
        """What a task begins an epoch with.

        Raises:
            Broken: it is not what everybody else restores, or older than what was announced.
        """
        if self._restored.setdefault(epoch, checkpoint) != checkpoint:
            raise Broken(f"epoch {epoch} restores {checkpoint} and {self._restored[epoch]}")
        if checkpoint < self._announced:
            raise Broken(f"epoch {epoch} restores {checkpoint}, and {self._announced} was announced")
        if not checkpoint:
            return TaskSnapshot(0, Counter(), ())
        if checkpoint not in self.commits or checkpoint not in self._manifests:
            raise Broken(f"epoch {epoch} restores {checkpoint}, which is not committed or has no manifest")
        return self._snapshots[task, checkpoint]

    def announced(self, checkpoint: int) -> None:
        """A task was told of a commit.

        Raises:
            Broken: there is none.
        """
        if checkpoint not in self.commits:
            raise Broken(f"checkpoint {checkpoint} was announced, and is not committed")
        self._announced = max(self._announced, checkpoint)

    def recorded(self, record: state_pb2.Checkpoints, epoch: int) -> None:
        """A Topology Master has written the record.

        Raises:
            Broken: what it commits is not the state after some numbers of each source.
        """
        newest = record.committed[-1] if record.committed else 0
        if not newest or newest in self.commits:
            return
        if newest not in self._manifests:
            raise Broken(f"checkpoint {newest} is committed before its manifest is stored")
        self.commits[newest] = epoch
        counts: Counts = Counter()
        for task in (task for tasks in self.tasks.values() for task in tasks):
            snapshot = self._snapshots.get((task, newest))
            if snapshot is None:
                raise Broken(f"checkpoint {newest} is committed without task {task}")
            counts.update({(task, item): count for item, count in snapshot.counts.items()})
            for batch in snapshot.log:
                self._closure(counts, task, decoded(batch.data))
        self.check(counts, self.positions(newest), f"checkpoint {newest}")

    def positions(self, checkpoint: int) -> dict[int, int]:
        """How many numbers of each source a committed checkpoint covers."""
        return {source: self._snapshots[source, checkpoint].position for source in self.tasks["source"]}

    @property
    def newest(self) -> int:
        """The last checkpoint that was committed."""
        return max(self.commits, default=0)

    def check(self, counts: Counts, positions: Mapping[int, int], what: str) -> None:
        """Raises Broken if these are not the counts at these positions."""
        expected = self.expected(positions)
        if counts != expected:
            more, less = list((counts - expected).items())[:3], list((expected - counts).items())[:3]
            raise Broken(f"{what} at {dict(positions)}: too often {more}, not often enough {less}")
