"""What checkpoints of state by key cost a task: its longest stops, bytes, and CPU per key, without other processes.

The task is what `heronpy.state` is for the engine: batches of changes, and a slice of the checkpoint after each.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time
from typing import TypeVar

from heronpy.checkpoints import BytesSource, ComponentEntry, Manifest, ObjectReader, ObjectRef, read_saved
from heronpy.state import KeyedState, Place, TaskStates

T = TypeVar("T")

PLACE = Place("bench-1", "count")
BATCH = 2_000
"""Tuples between two slices."""
STOP_MS_MAX = 5.0
LOOP_MS = 2.0
"""Of CPU, as a slice."""
DIRTY = 0.01
"""The share of the keys that change between the second and the third checkpoint."""


@dataclass(frozen=True, slots=True)
class StateCosts:
    """Of one number of keys. CPU of the task's thread."""

    keys: int
    stop_ms: float
    """The longest by a checkpoint, of several in which all keys, 1 % of them, and most of them have changed."""
    stop_at: str
    """In which of them, and in which step."""
    steps: int
    """How many there were: markers, slices, commits, releases."""
    long_steps: int
    """How many took more than STOP_MS_MAX."""
    loop_ms: float
    """The longest of so many loops of about LOOP_MS that do nothing, one after each step: what the machine adds."""
    dirty_bytes: float
    """Bytes of a checkpoint with 1 % of the keys, as a share of one with all."""
    write_ns: float
    """Writing a key of a checkpoint with all."""
    restore_ns: float
    """Reading it again."""


class _Task:
    """A task that counts."""

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self.states = TaskStates(PLACE)
        self.counts = self.states.keyed_state("counts", default=0)
        self.stop_s, self.stop_at = 0.0, ""
        self.steps = self.long_steps = 0
        self.last_s = self.loop_s = 0.0
        self._loop = range(_rounds())
        self.checkpoint_id = 0
        self._random = random.Random(1)

    def run(self, tuples: int) -> None:
        """Change keys at random."""
        counts, pick = self.counts, self._random.random
        for _ in range(tuples):
            counts[f"key-{int(pick() * self.keys)}"] += 1

    def checkpoint(self, what: str, *, batch: int = BATCH) -> tuple[bytes, ObjectRef, float]:
        """Take one while the task goes on. Its object, its reference and the CPU seconds that writing took."""
        self.checkpoint_id += 1
        self._timed(f"{what}: marker", lambda: self.states.begin(self.checkpoint_id, 0))
        data = bytearray()
        ref = None
        wrote_s = 0.0
        while ref is None:
            chunks, ref = self._timed(f"{what}: slice", self.states.write)
            wrote_s += self.last_s
            data += b"".join(chunks)
            self.run(batch)
        self._timed(f"{what}: commit", lambda: self.states.commit(self.checkpoint_id))
        while not self._timed(f"{what}: release", self.states.release):
            self.run(batch)
        return bytes(data), ref, wrote_s

    def _timed(self, what: str, step: Callable[[], T]) -> T:
        before_s = thread_time()
        result = step()
        took_s = self.last_s = thread_time() - before_s
        if took_s > self.stop_s:
            self.stop_s, self.stop_at = took_s, what
        self.steps += 1
        self.long_steps += took_s * 1e3 > STOP_MS_MAX
        before_s = thread_time()
        for _ in self._loop:
            pass
        self.loop_s = max(self.loop_s, thread_time() - before_s)
        return result


def _rounds() -> int:
    """How often a loop goes round in LOOP_MS."""
    many = range(2_000_000)
    before_s = thread_time()
    for _ in many:
        pass
    return int(len(many) * LOOP_MS / 1e3 / (thread_time() - before_s))


def measure(keys: int) -> StateCosts:
    """Load so many keys, and take checkpoints."""
    task = _Task(keys)
    for number in range(keys):
        task.counts[f"key-{number}"] = number
    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(50_000, 20, 50)  # as instances do
    gc.freeze()
    try:
        # However long that takes, most keys stay as they are: else all would be written the next times, too.
        full, ref, wrote_s = task.checkpoint("all", batch=min(BATCH, keys // 200))
        before_s = thread_time()
        restored = _restored(full, ref)
        restore_s = thread_time() - before_s
        assert len(restored) == keys
        del restored
        task.checkpoint("what changed meanwhile", batch=0)
        for number in range(0, keys, round(1 / DIRTY)):
            task.counts[f"key-{number}"] = -1
        part, _, _ = task.checkpoint("1 %", batch=0)
        for what in ("most", "most, in place"):
            task.run(keys * 2)
            task.checkpoint(what)
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    return StateCosts(
        keys=keys,
        stop_ms=task.stop_s * 1e3,
        stop_at=task.stop_at,
        steps=task.steps,
        long_steps=task.long_steps,
        loop_ms=task.loop_s * 1e3,
        dirty_bytes=len(part) / len(full),
        write_ns=wrote_s / keys * 1e9,
        restore_ns=restore_s / keys * 1e9,
    )


def _restored(data: bytes, ref: ObjectRef) -> KeyedState:
    manifest = Manifest(
        topology_id=PLACE.topology_id,
        checkpoint_id=ref.checkpoint_id,
        epoch=0,
        groups=PLACE.groups,
        components={PLACE.component: ComponentEntry(1, 0)},
        objects=(ref,),
    )
    saved = read_saved(manifest, PLACE.component, 0, 1, lambda ref: ObjectReader(BytesSource(ref.name, data)))
    return TaskStates(PLACE, saved).keyed_state("counts")
