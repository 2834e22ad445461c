"""A component whose tasks count words, and give their snapshots to a Checkpoint Manager: no links, no tuples."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from heronpy.checkpoints import LoggedBatch, LogHeader, ObjectRef, encode_log, encode_ref
from heronpy.ckptmgr.client import CheckpointClient, ManifestSize
from heronpy.hashing import index_of_group, key_group
from heronpy.state import KeyedState, Place, TaskStates

COMPONENT = "count"
GROUPS = 16


async def pieces_of(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def written(states: TaskStates) -> tuple[list[bytes], ObjectRef]:
    """The object of a checkpoint that has begun."""
    pieces: list[bytes] = []
    while True:
        some, ref = states.write()
        pieces += some
        if ref is not None:
            return pieces, ref


class Counting:
    """Its tasks, with the state that they were restored with."""

    def __init__(self, client: CheckpointClient, tasks: int = 2, topology_id: str = "words-1") -> None:
        self.client, self.topology_id = client, topology_id
        self.states: list[TaskStates] = []
        self.counts: list[KeyedState] = []
        self.logs: list[tuple[LoggedBatch, ...]] = []
        self.tasks = tasks
        self.committed = 0
        self.epoch = 1

    async def restore(self, checkpoint: int, epoch: int = 1) -> None:
        """Restore all tasks; 0: begin without state."""
        restored = [await self.client.restore(checkpoint, COMPONENT, at, self.tasks) for at in range(self.tasks)]
        places = [Place(self.topology_id, COMPONENT, at, self.tasks, GROUPS) for at in range(self.tasks)]
        self.states = [TaskStates(place, one.saved) for place, one in zip(places, restored, strict=True)]
        self.counts = [states.keyed_state("counts", default=0) for states in self.states]
        self.logs = [one.log for one in restored]
        self.committed, self.epoch = checkpoint, epoch

    def count(self, words: Iterable[str]) -> None:
        for word in words:
            self.counts[index_of_group(key_group(word, GROUPS), self.tasks, GROUPS)][word] += 1

    @property
    def total(self) -> dict[str, int]:
        return {word: count for counts in self.counts for word, count in counts.items()}

    async def snapshot(self, checkpoint: int, log: Sequence[LoggedBatch] = ()) -> list[bytes]:
        """Have all tasks store their snapshots; the log is that of task 0. What they report."""
        reported = []
        for states in self.states:
            if states.begin(checkpoint, self.epoch):
                pieces, ref = written(states)
                await self.client.save(ref.name, pieces_of(pieces))
                reported.append(encode_ref(ref))
        if log:
            pieces, log_ref = encode_log(
                LogHeader(
                    topology_id=self.topology_id,
                    component=COMPONENT,
                    index=0,
                    tasks=self.tasks,
                    checkpoint_id=checkpoint,
                    epoch=self.epoch,
                ),
                log,
            )
            await self.client.save(log_ref.name, pieces_of(pieces))
            reported.append(encode_ref(log_ref))
        return reported

    async def write_manifest(self, checkpoint: int, reported: Sequence[bytes], timeout_s: float = 120) -> ManifestSize:
        return await self.client.write_manifest(
            checkpoint=checkpoint,
            epoch=self.epoch,
            previous=self.committed,
            objects=reported,
            tasks={"words": 3, COMPONENT: self.tasks},
            duration_s=0.5,
            timeout_s=timeout_s,
        )

    def commit(self, checkpoint: int) -> None:
        for states in self.states:
            states.commit(checkpoint)
        self.committed = checkpoint

    async def checkpoint(self, checkpoint: int, log: Sequence[LoggedBatch] = ()) -> ManifestSize:
        """All of it."""
        size = await self.write_manifest(checkpoint, await self.snapshot(checkpoint, log))
        self.commit(checkpoint)
        return size
