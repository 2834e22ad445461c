"""A component whose tasks have state, without processes: marker, slices, commit, abort, restore."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heronpy.checkpoints import (
    NOTHING_SAVED,
    BytesSource,
    ComponentEntry,
    Manifest,
    ObjectReader,
    ObjectRef,
    compact,
    next_manifest,
    read_saved,
    removable_objects,
)
from heronpy.hashing import index_of_group, key_group
from heronpy.state import Memory, Place, TaskStates

GROUPS = 16
NAME = "count"


class Ticks:
    """A clock that goes on by 1 whenever it is read: a budget is a number of entries."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Component:
    """Its tasks, and what was stored of it."""

    def __init__(
        self, declare: Callable[[TaskStates], Any], tasks: int = 1, *, at_once: int = 1, memory_bytes: int | None = None
    ) -> None:
        """Tasks that have declared their states; with `memory_bytes`, what is beyond goes to files."""
        self.declare = declare
        self.memory_bytes = memory_bytes
        self.tasks: list[TaskStates] = []
        self.objects: dict[str, bytes] = {}
        self.manifests: list[Manifest] = []
        """Of committed checkpoints, the newest last."""
        self.compacted: list[ObjectRef] = []
        self.now_ms = 1_000_000
        self.at_once = at_once
        self.clock = Ticks()
        self.epoch = 0
        self.checkpoint_id = 0
        self._chunks: dict[int, list[bytes]] = {}
        self.refs: list[ObjectRef] = []
        self._start(tasks)

    def _start(self, tasks: int) -> None:
        for task in self.tasks:
            task.close()
        started = [self.restored(index, tasks) for index in range(tasks)]
        declared = [self.declare(states) for states in started]
        for states in started:
            states.check_claimed()
        self.tasks = started
        self.declared: list[Any] = declared
        """What `declare` returned, by task."""
        manifest = self.manifest
        entry = manifest.components[NAME] if manifest else ComponentEntry(tasks, 0)
        self.generation = entry.generation if manifest is None or entry.tasks == tasks else manifest.checkpoint_id

    @property
    def manifest(self) -> Manifest | None:
        return self.manifests[-1] if self.manifests else None

    def restored(self, index: int, tasks: int) -> TaskStates:
        saved = NOTHING_SAVED
        if self.manifest is not None:
            saved = read_saved(self.manifest, NAME, index, tasks, self.opened, kept=self.memory_bytes is None)
        place = Place("words-1", NAME, index, tasks, GROUPS)
        memory = None if self.memory_bytes is None else Memory(self.memory_bytes, Path(tempfile.gettempdir()))
        return TaskStates(place, saved, clock_ms=lambda: self.now_ms, entries_at_once=self.at_once, memory=memory)

    def opened(self, ref: ObjectRef) -> ObjectReader:
        return ObjectReader(BytesSource(ref.name, self.objects[ref.name]))

    def of(self, key: Any) -> Any:
        """What was declared by the task that a key belongs to."""
        return self.declared[self.owner(key)]

    def owner(self, key: Any) -> int:
        return index_of_group(key_group(key, GROUPS), len(self.tasks), GROUPS)

    @property
    def writing(self) -> bool:
        return any(task.pending for task in self.tasks)

    def begin(self) -> int:
        """The marker reaches all tasks."""
        self.checkpoint_id += 1
        self.refs, self._chunks = [], {}
        for task in self.tasks:
            task.begin(self.checkpoint_id, self.epoch)
        return self.checkpoint_id

    def write(self, entries: int = 1 << 30) -> None:
        """A slice in each task."""
        for index, task in enumerate(self.tasks):
            if task.pending:
                chunks, ref = task.write(entries, self.clock)
                self._chunks.setdefault(index, []).extend(chunks)
                if ref is not None:
                    self.objects[ref.name] = b"".join(self._chunks.pop(index))
                    self.refs.append(ref)

    def manifest_of(self, checkpoint_id: int) -> Manifest:
        return next_manifest(
            self.manifest,
            Manifest(
                topology_id="words-1",
                checkpoint_id=checkpoint_id,
                epoch=self.epoch,
                groups=GROUPS,
                components={NAME: ComponentEntry(len(self.tasks), self.generation)},
                objects=tuple(self.refs),
            ),
            self.compacted,
        )

    def commit(self) -> Manifest:
        """The last checkpoint that began is written and committed, and all tasks hear of it."""
        while self.writing:
            self.write()
        manifest = self.manifest_of(self.checkpoint_id)
        self.manifests.append(manifest)
        self.compacted = []
        for task in self.tasks:
            task.commit(self.checkpoint_id)
            task.release()
        return manifest

    def abort(self) -> None:
        for task in self.tasks:
            task.abort(self.checkpoint_id)

    def checkpoint(self) -> Manifest:
        self.begin()
        return self.commit()

    def restart(self, tasks: int) -> None:
        """Everything dies, and is restored from the last commit with so many tasks."""
        self.epoch += 1
        self.compacted = []
        self._start(tasks)

    def compact(self, index: int) -> ObjectRef:
        """Merge the objects of a task; the next manifest names the merged one."""
        assert self.manifest is not None
        data = b""
        ref = None
        for chunks, found in compact(self.manifest, NAME, index, self.epoch, self.opened):
            data += b"".join(chunks)
            ref = found
        assert ref is not None
        self.objects[ref.name] = data
        self.compacted.append(ref)
        return ref

    def retain(self, keep: int) -> None:
        """Forget all but the newest checkpoints, and what only they needed."""
        self.manifests = self.manifests[-keep:]
        before = self.manifests[-1].checkpoint_id + 1
        for name in removable_objects(list(self.objects), self.manifests, before, {ref.name for ref in self.compacted}):
            del self.objects[name]
