"""The storage of checkpoints in a simulated cluster, and what is promised of what is committed: exact counts."""

from __future__ import annotations

import marshal
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from heronpy.checkpoints import ReadAhead
from heronpy.instance.checkpoints import InputBatch
from heronpy.proto import state_pb2
from heronpy.testing.simulation._programs import CYCLE, Broken, Ledger, Number
from heronpy.tmaster.checkpoints import (
    FindIntact,
    IntactFound,
    IntactUnknown,
    ManifestFailed,
    ManifestWritten,
    WriteManifest,
)

FAIL_SHARE = 0.02
"""How many calls fail."""
_NOTICED_SHARE = 0.5
"""How often damage is noticed when the next manifest is written."""
Item = tuple[int, int, str]
"""Task of the source, a number, and which of the tuples that are made of it."""
Answer = Callable[[float], ManifestWritten | ManifestFailed | IntactFound | IntactUnknown]
"""What a Checkpoint Manager says, by the time at which it does."""
Counts = Counter[tuple[str, Item]]
"""How often each component has executed each item."""


@dataclass(frozen=True)
class TaskSnapshot:
    """What is stored of one task."""

    position: int
    counts: Counter[Item]
    log: tuple[InputBatch, ...]
    whole: bool = True
    """Whether the task has written all of it, and not what changed since the checkpoint before."""


def encoded(item: Item) -> bytes:
    """The body of a batch with one item."""
    return marshal.dumps(item)


def decoded(body: bytes) -> Item:
    """The item in the body of a batch."""
    source, number, branch, *_ = marshal.loads(body)
    return source, number, branch


def owner(component: str, item: Item, tasks: int) -> int:
    """Index of the task that an item is for, of so many."""
    _, number, branch = item
    if component == "relay":
        return (number + (branch == "again")) % tasks
    return (number + (branch == "relay 1")) % tasks


def first(source: int, number: int) -> tuple[str, Item]:
    """The component that a source sends a number to, and as what."""
    if number % 3 == 0:
        return "sink", (source, number, "mark")
    return "relay", (source, number, "copy")


class Storage:
    """Snapshots, manifests and commits, over all incarnations of everybody."""

    def __init__(self, kind: str, sources: Sequence[int], *, at_least_once: bool = False) -> None:
        """Make an empty storage.

        Args:
            kind: Of the topology.
            sources: The tasks of the source. Their number stays; those of the others may change.
            at_least_once: Numbers may be executed again, and what was acked must be in all that is committed.
        """
        self.kind, self.sources = kind, sources
        self._at_least_once = at_least_once
        self._committed: Counts = Counter()
        """What the newest committed checkpoint makes, with its logs."""
        self._snapshots: dict[tuple[int, str, int, int], TaskSnapshot] = {}
        """By checkpoint, component, index of the task, and how many tasks there were."""
        self._manifests: dict[int, Mapping[str, int]] = {}
        """Of each checkpoint that has one, how many tasks each component had."""
        self._taken: dict[int, tuple[int, int]] = {}
        """Of each of them, the restore epoch in which it was taken, and the one that was committed before."""
        self.commits: dict[int, int] = {}
        """The restore epoch in which each was committed."""
        self.rescaled = 0
        """How often a task was restored that is one of another number than at the checkpoint."""
        self.read_ahead = 0
        """How often a task had read ahead what it was restored with, apart from what came after that."""
        self.read_on_top = 0
        """How often a task has read ahead what came after what it had read ahead before."""
        self.away = False
        """Whether the storage answers no request."""
        self._announced = 0
        self._record: tuple[int, ...] = ()
        """The committed checkpoints that are kept."""
        self.damaged: dict[int, str] = {}
        """The component that cannot read its part, by checkpoint."""
        self._acked: set[Number] = set()
        self._forgotten: set[int] = set()
        """Commits of which nobody was told before the state manager lost its data."""
        self._unfit: set[int] = set()
        """Intact ones whose logs are for other numbers of tasks than there were at the last check."""
        self._restored: dict[int, int] = {}

    # what a topology makes of a number

    def follows(self, item: Item) -> Iterator[tuple[str, Item]]:
        """What a relay makes of an item, and for which component."""
        source, number, branch = item
        if branch == "copy":
            for part in range(2):
                yield "sink", (source, number, f"relay {part}")
            if self.kind == CYCLE:
                yield "relay", (source, number, "again")
        elif branch == "again":
            yield "sink", (source, number, "done")

    def _closure(self, counts: Counts, component: str, item: Item) -> None:
        counts[component, item] += 1
        if component == "relay":
            for follower, made in self.follows(item):
                self._closure(counts, follower, made)

    def expected(self, positions: Mapping[int, int]) -> Counts:
        """What all have executed when everything is done that follows from the sources' first numbers."""
        counts: Counts = Counter()
        for source, position in positions.items():
            for number in range(position):
                self._closure(counts, *first(source, number))
        return counts

    # what is stored

    def save(self, checkpoint: int, component: str, index: int, tasks: int, snapshot: TaskSnapshot) -> None:
        """Store what task `index` of `tasks` has."""
        self._snapshots[checkpoint, component, index, tasks] = snapshot

    def damage(self, component: str) -> None:
        """Damage what a component has in the newest committed checkpoint; not in the only one left for all tasks."""
        intact = [id for id in self._record if id not in self.damaged]
        if any(not self._logged(id) for id in intact[:-1]):
            self.damaged[intact[-1]] = component

    def _logged(self, checkpoint: int) -> dict[str, int]:
        """The components that have batches in the logs of a checkpoint, and for how many tasks."""
        return {
            name: tasks for (id, name, _, tasks), saved in self._snapshots.items() if id == checkpoint and saved.log
        }

    def is_damaged(self, checkpoint: int, component: str) -> bool:
        """Whether a task of the component cannot read its part of a checkpoint."""
        return self.damaged.get(checkpoint) == component

    def find_intact(self, effect: FindIntact, rng: random.Random) -> Answer:
        """Look at checkpoints, mostly."""
        epoch = effect.epoch
        if self.away or rng.random() < FAIL_SHARE:
            return lambda now_s: IntactUnknown(epoch, "the storage does not answer", now_s)
        intact = [id for id in effect.committed if id in self._manifests and id not in self.damaged]
        self._unfit = {id for id in intact if not self._logged(id).items() <= effect.tasks.items()}
        found = max(set(intact) - self._unfit, default=0)
        refused = tuple(f"{id}: damaged, or for other tasks" for id in effect.committed if id > found)
        logged = self._logged(max(self._unfit, default=0))
        return lambda now_s: IntactFound(epoch, found, refused, now_s, logged)

    def write_manifest(self, effect: WriteManifest, rng: random.Random) -> Answer:
        """Store a manifest, mostly; the answer, by its time."""
        id, epoch = effect.checkpoint, effect.epoch
        if effect.previous in self.damaged and rng.random() < _NOTICED_SHARE:
            return lambda now_s: ManifestFailed(id, epoch, f"{effect.previous} is damaged", now_s, damage=True)
        if not effect.previous and not all(saved.whole for at, saved in self._snapshots.items() if at[0] == id):
            raise Broken(f"checkpoint {id} follows none, and not all of its snapshots are whole")
        if self.away:
            return lambda now_s: ManifestFailed(id, epoch, "the storage does not answer", now_s)
        if rng.random() >= FAIL_SHARE:
            self._manifests[id], self._taken[id] = dict(effect.tasks), (epoch, effect.previous)
            if rng.random() >= FAIL_SHARE:
                return lambda now_s: ManifestWritten(id, epoch, now_s)
        return lambda now_s: ManifestFailed(id, epoch, "the storage does not answer", now_s)

    def discard(self, keep: tuple[int, ...], before: int) -> None:
        """Delete checkpoints."""
        self._manifests = {id: of for id, of in self._manifests.items() if id >= before or id in keep}
        self._snapshots = {at: of for at, of in self._snapshots.items() if at[0] >= before or at[0] in keep}

    def restored(self, epoch: int, checkpoint: int, component: str, index: int, tasks: int) -> TaskSnapshot:
        """What task `index` of `tasks` begins an epoch with.

        Raises:
            Broken: it is not what everybody else restores, or older than what was announced; or there are batches in
                its logs that are for another number of tasks.
        """
        if self._restored.setdefault(epoch, checkpoint) != checkpoint:
            raise Broken(f"epoch {epoch} restores {checkpoint} and {self._restored[epoch]}")
        if checkpoint < self._announced:
            raise Broken(f"epoch {epoch} restores {checkpoint}, and {self._announced} was announced")
        if not checkpoint:
            return TaskSnapshot(0, Counter(), ())
        if checkpoint not in self.commits or checkpoint not in self._manifests:
            raise Broken(f"epoch {epoch} restores {checkpoint}, which is not committed or has no manifest")
        before = self._manifests[checkpoint][component]
        if before == tasks:
            return replace(self._snapshots[checkpoint, component, index, tasks], whole=False)
        self.rescaled += 1
        counts: Counter[Item] = Counter()
        for other in range(before):
            saved = self._snapshots[checkpoint, component, other, before]
            if saved.log:
                raise Broken(
                    f"checkpoint {checkpoint} has a log of {before} tasks of {component}, now there are {tasks}"
                )
            counts.update(
                {item: count for item, count in saved.counts.items() if owner(component, item, tasks) == index}
            )
        return TaskSnapshot(0, counts, (), whole=False)

    def restored_ahead(self, checkpoint: int, ahead: ReadAhead, index: int, tasks: int) -> None:
        """Task `index` of `tasks` is restored, and has read something ahead.

        Raises:
            Broken: it would restore a checkpoint that does not follow the one that it has read.
        """
        if checkpoint and (ahead.index, ahead.tasks) == (index, tasks) and self._follows(checkpoint, ahead):
            self.read_ahead += 1

    def read_on(self, before: ReadAhead, ahead: ReadAhead) -> None:
        """A task has read a checkpoint ahead after another one.

        Raises:
            Broken: it would read only what is newer of one that does not follow the one before.
        """
        same_part = (before.index, before.tasks) == (ahead.index, ahead.tasks)
        if same_part and ahead.checkpoint_id in self._taken and self._follows(ahead.checkpoint_id, before):
            self.read_on_top += 1

    def _follows(self, checkpoint: int, ahead: ReadAhead) -> bool:
        """Whether only what is newer is read of a checkpoint.

        Raises:
            Broken: it does not follow.
        """
        if not ahead.precedes(checkpoint, self._taken[checkpoint][0]):
            return False
        before = checkpoint
        while before > ahead.checkpoint_id:
            before = self._taken[before][1]
        if not before:
            return False  # there is a whole one in between
        if before != ahead.checkpoint_id:
            raise Broken(f"checkpoint {checkpoint} is read from {ahead.checkpoint_id} on, which it does not follow")
        return True

    def announced(self, checkpoint: int) -> None:
        """A task was notified of a commit.

        Raises:
            Broken: there is none.
        """
        if checkpoint not in self.commits:
            raise Broken(f"checkpoint {checkpoint} was announced, and is not committed")
        # It may be late: an older one may have been taken instead, as this one was damaged.
        self._announced = max(self._announced, min(checkpoint, self.newest))

    def record_lost(self) -> None:
        """The state manager has lost its data.

        A Topology Master writes it again, as far as it knows of it. Its predecessor may have died before it was told
        that its last commit is done, and then neither has told anybody.
        """
        self._forgotten.update(id for id in self.commits if id > self._announced)

    def recorded(self, record: state_pb2.Checkpoints, epoch: int) -> None:
        """A Topology Master has written the record.

        Raises:
            Broken: what it commits is not the state after some numbers of each source.
        """
        self._record = tuple(record.committed)
        newest = self.newest
        gone = self.damaged.keys() | self._unfit | self._forgotten
        if intact := [id for id in self.commits if id > newest and id not in gone]:
            raise Broken(f"{intact} are passed over, and intact: {newest} is the newest now")
        self._announced = min(self._announced, newest)
        if not newest or newest in self.commits:
            return
        if newest not in self._manifests:
            raise Broken(f"checkpoint {newest} is committed before its manifest is stored")
        self.commits[newest] = epoch
        counts: Counts = Counter()
        for component, tasks in self._manifests[newest].items():
            for index in range(tasks):
                snapshot = self._snapshots.get((newest, component, index, tasks))
                if snapshot is None:
                    raise Broken(f"checkpoint {newest} is committed without task {index} of {component}")
                counts.update({(component, item): count for item, count in snapshot.counts.items()})
                for batch in snapshot.log:
                    self._closure(counts, component, decoded(batch.data))
        self._committed = counts
        if self._at_least_once:
            self.check_at_least_once(counts, f"checkpoint {newest}")
        else:
            self.check(counts, self.positions(newest), f"checkpoint {newest}")

    def positions(self, checkpoint: int) -> dict[int, int]:
        """How many numbers of each source a committed checkpoint covers."""
        number = len(self.sources)
        return {
            source: self._snapshots[checkpoint, "source", index, number].position
            for index, source in enumerate(self.sources)
        }

    @property
    def newest(self) -> int:
        """The last checkpoint that was committed, and not passed over since then."""
        return self._record[-1] if self._record else 0

    def check_saved(self, after: int) -> None:
        """Raises Broken if there is no newer checkpoint than this one that any number of tasks can restore."""
        logs = [at for at, saved in self._snapshots.items() if at[0] == self.newest and saved.log]
        if self.newest <= after or logs:
            raise Broken(f"checkpoint {self.newest} is what was asked for after {after}, and has logs: {logs}")

    def acked(self, number: Number, ledger: Ledger) -> None:
        """At least once: a source is notified that a number is done with.

        Raises:
            Broken: the newest committed checkpoint does not have all that follows from it.
        """
        if missing := self._closed(number) - self._committed:
            raise Broken(f"{number} is acked, and checkpoint {self.newest} lacks {list(missing)[:3]}")
        ledger.acked.add(number)
        self._acked.add(number)

    def _closed(self, number: Number) -> Counts:
        """What follows from one number."""
        counts: Counts = Counter()
        self._closure(counts, *first(*number))
        return counts

    def check_at_least_once(self, counts: Counts, what: str) -> None:
        """Raises Broken unless some numbers make just this, each any number of times, and all that are acked are in."""
        expected: Counts = Counter()
        for (component, item), count in counts.items():
            if (component, item) == first(*item[:2]):
                expected.update({each: count * made for each, made in self._closed(item[:2]).items()})
        self._compare(counts, expected, what)
        if missing := [number for number in self._acked if first(*number) not in counts]:
            raise Broken(f"{what} lacks what was acked: {missing[:3]}")

    def check(self, counts: Counts, positions: Mapping[int, int], what: str) -> None:
        """Raises Broken if these are not the counts at these positions."""
        self._compare(counts, self.expected(positions), f"{what} at {dict(positions)}")

    @staticmethod
    def _compare(counts: Counts, expected: Counts, what: str) -> None:
        if counts != expected:
            more, less = list((counts - expected).items())[:3], list((expected - counts).items())[:3]
            raise Broken(f"{what}: too often {more}, not often enough {less}")
