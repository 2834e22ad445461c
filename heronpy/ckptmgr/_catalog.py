"""The checkpoints of one topology as a whole: which manifest comes next, what is merged, and what is deleted.

Only the Checkpoint Manager of container 0 has a catalog in use, because the Topology Master asks that one. Methods
block, and are called in threads: `write`, `merge` and `discard` each by one at a time, and beside each other.

A merge reads a checkpoint that is committed: that of which a Topology Master says that it is the last one before the
next manifest. What was merged enters the next manifest; till then it is pinned, because no manifest names it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from heronpy.checkpoints import (
    MANIFESTS,
    OBJECTS,
    CheckpointStorage,
    ComponentEntry,
    Kind,
    LogRef,
    Manifest,
    ObjectRef,
    OperatorEntry,
    base_name,
    check_complete,
    check_stored,
    compact,
    decode_ref,
    manifest_id,
    manifest_name,
    next_manifest,
    object_checkpoint_id,
    open_object,
    read_manifest,
    removable_objects,
    should_compact,
)
from heronpy.errors import CheckpointError, NotFoundError, StateError
from heronpy.hashing import KEY_GROUPS
from heronpy.plan import StateOwner

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A manifest that is to be made."""

    checkpoint: int
    epoch: int
    previous: int
    """The last committed checkpoint; 0: none."""
    objects: Sequence[bytes]
    """What the tasks have reported."""
    tasks: Mapping[str, int]
    """Of each component, how many tasks it has."""
    duration_ms: int = 0
    owners: Sequence[StateOwner] = ()
    """The operators of all components that have state."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The objects of a task that are worth a merge."""

    manifest: Manifest
    component: str
    index: int
    epoch: int


Declared = dict[str, dict[int, set[tuple[str, Kind]]]]
"""By component and index of the task: the names and kinds of its states."""


class Catalog:
    """What must be known from one call to the next."""

    def __init__(self, topology_id: str) -> None:
        """Nothing is known, and nothing is merged."""
        self._topology_id = topology_id
        self._lock = threading.Lock()
        self._merged: dict[str, ObjectRef] = {}
        """What no manifest names yet."""
        self._pinned: set[str] = set()
        """Names of what is merged, or being merged."""

    # --- Manifests

    def write(self, storage: CheckpointStorage, wanted: Wanted) -> tuple[Manifest, list[Merge]]:
        """Make the manifest of a checkpoint. A repeated call succeeds.

        Returns:
            The manifest, and what of the checkpoint before is worth a merge.

        Raises:
            CheckpointError: it would be one that cannot be restored, or there is another one of this checkpoint.
            StateError: the tasks of a component do not declare the same states.
        """
        refs = [decode_ref(data) for data in wanted.objects]
        objects = list({ref.name: ref for ref in refs if isinstance(ref, ObjectRef)}.values())
        logs = list({ref.name: ref for ref in refs if isinstance(ref, LogRef)}.values())
        if (written := self._written(storage, wanted, objects, logs)) is not None:
            return written, []
        previous = self._previous(storage, wanted.previous)
        groups, declared = self._check_objects(storage, wanted, objects, logs)
        _check_declared(declared)
        if not groups:
            groups = KEY_GROUPS if previous is None else previous.groups
        with self._lock:
            # After a fallback: what is merged, or being merged, of a newer checkpoint has no successors.
            self._pinned = {n for n in self._pinned if (object_checkpoint_id(n) or 0) <= wanted.previous}
            merged = {name: ref for name, ref in self._merged.items() if name in self._pinned}
            self._merged = dict(merged)
        manifest = next_manifest(
            previous,
            Manifest(
                topology_id=self._topology_id,
                checkpoint_id=wanted.checkpoint,
                epoch=wanted.epoch,
                groups=groups,
                components=_components(wanted, previous, objects),
                objects=tuple(objects),
                logs=tuple(logs),
                created_ms=time.time_ns() // 1_000_000,
                duration_ms=wanted.duration_ms,
            ),
            self._usable(storage, merged.values(), previous),
        )
        check_complete(manifest)
        if not storage.create(manifest.name, manifest.encode()):
            again = self._written(storage, wanted, objects, logs)
            assert again is not None, "it could not be created, so it is there"
            return again, []
        with self._lock:
            for name in merged:
                self._merged.pop(name, None)
                self._pinned.discard(name)
        return manifest, [] if previous is None else list(_due(previous, wanted.epoch))

    def _written(
        self, storage: CheckpointStorage, wanted: Wanted, objects: Iterable[ObjectRef], logs: Iterable[LogRef]
    ) -> Manifest | None:
        """The manifest of an earlier call whose answer was lost."""
        name = manifest_name(wanted.checkpoint)
        try:
            found = read_manifest(storage, name)
        except NotFoundError:
            return None
        if found.epoch != wanted.epoch or not (set(objects) <= set(found.objects) and set(logs) == set(found.logs)):
            raise CheckpointError(f"{name}: there is one of restore epoch {found.epoch}, with other objects")
        return found

    def _previous(self, storage: CheckpointStorage, checkpoint: int) -> Manifest | None:
        """The checkpoint that the next one follows; None if that has nothing which another one could need."""
        if checkpoint == 0:
            return None
        try:
            found = read_manifest(storage, manifest_name(checkpoint))
            return found if found.objects else None
        except NotFoundError as e:
            raise CheckpointError(f"the manifest of checkpoint {checkpoint}, which is committed, is missing") from e

    def _check_objects(
        self, storage: CheckpointStorage, wanted: Wanted, objects: Iterable[ObjectRef], logs: Iterable[LogRef]
    ) -> tuple[int, Declared]:
        """Check that all objects are there, and are what the tasks have reported.

        Returns:
            Their number of key groups, 0 if there are none; and the states that they are of.
        """
        groups = 0
        declared: Declared = {}
        for ref in objects:
            reader = open_object(storage, ref)
            header = reader.header
            expected = (self._topology_id, wanted.checkpoint, wanted.epoch, wanted.tasks.get(ref.component))
            found = (header.topology_id, header.checkpoint_id, header.epoch, header.tasks)
            if ObjectRef.of(reader, ref.name) != ref or found != expected:
                raise CheckpointError(
                    f"checkpoint object {ref.name}: it is not the one that was reported, but {header}"
                )
            if groups not in (0, header.groups):
                raise CheckpointError(f"checkpoint object {ref.name}: it has {header.groups} key groups, not {groups}")
            groups = header.groups
            declared.setdefault(ref.component, {})[ref.index] = {(each.name, each.kind) for each in header.states}
        for log_ref in logs:
            if (log_ref.checkpoint_id, log_ref.epoch) != (wanted.checkpoint, wanted.epoch):
                raise CheckpointError(f"checkpoint log {log_ref.name}: it is of checkpoint {log_ref.checkpoint_id}")
            check_stored(storage, log_ref)
        return groups, declared

    def _usable(
        self, storage: CheckpointStorage, merged: Iterable[ObjectRef], previous: Manifest | None
    ) -> Iterator[ObjectRef]:
        """What was merged out of a checkpoint that the new one follows, and is still there."""
        for ref in merged:
            if previous is None:
                continue
            try:
                open_object(storage, ref)
            except CheckpointError as e:
                log.warning("a merged object is not used: %s", e)
            else:
                yield ref

    # --- Merges

    def merge(
        self, storage: CheckpointStorage, wanted: Merge, wait: Callable[[], None] = lambda: None
    ) -> ObjectRef | None:
        """Merge the objects of a task, for the next manifest. None if that was done already, or is not wanted any more.

        Args:
            storage: Where they are.
            wanted: Which.
            wait: Called before each part; returns when it is to go on.

        Raises:
            CheckpointError: an object is missing or damaged.
        """
        manifest, component = wanted.manifest, wanted.component
        name = base_name(
            component, manifest.checkpoint_id, wanted.epoch, wanted.index, manifest.components[component].tasks
        )
        with self._lock:
            if name in self._pinned:
                return None
            self._pinned.add(name)
        merged: list[ObjectRef] = []

        def pieces() -> Iterator[bytes]:
            wait()
            for some, ref in compact(
                manifest, component, wanted.index, wanted.epoch, lambda ref: open_object(storage, ref)
            ):
                yield from some
                if ref is not None:
                    merged.append(ref)
                else:
                    wait()

        try:
            storage.put(name, pieces())
            (ref,) = merged
            assert ref.name == name, f"the merged object is called {ref.name}"
            with self._lock:
                if name not in self._pinned:
                    return None
                self._merged[name] = ref
        except BaseException:
            with self._lock:
                self._pinned.discard(name)
            raise
        return ref

    # --- Retention

    def discard(self, storage: CheckpointStorage, keep: Iterable[int], before: int) -> tuple[list[str], str]:
        """Delete checkpoints older than one, except for some, and the objects that none needs any more.

        Returns:
            What was deleted; and what the newest that is kept needs and is not there, in words: empty if nothing.

        Raises:
            CheckpointError: a manifest that stays is damaged, so it is not known which objects it needs.
        """
        keep = set(keep)
        # In this order: what is merged meanwhile is in no list of names, or pinned, or named by a manifest.
        stored = storage.names(OBJECTS)
        with self._lock:
            pinned = set(self._pinned)
        manifests = {name: of for name in storage.names(MANIFESTS) if (of := manifest_id(name)) is not None}
        old = [name for name, of in manifests.items() if of < before and of not in keep]
        kept = [read_manifest(storage, name) for name in manifests.keys() - set(old)]
        storage.delete(old)
        objects = removable_objects(stored, kept, before, pinned)
        storage.delete(objects)
        storage.remove_torn()
        return [*old, *objects], _lost(max(keep, default=0), set(stored), kept)


def _lost(newest: int, stored: set[str], manifests: Iterable[Manifest]) -> str:
    """What a committed checkpoint needs and is not there, in words; by names alone, so damage is not seen."""
    name = manifest_name(newest)
    manifest = next((each for each in manifests if each.checkpoint_id == newest), None)
    if newest and manifest is None:
        return f"{name} is missing"
    if manifest is None:
        return ""
    needed = {ref.name for ref in manifest.objects} | {ref.name for ref in manifest.logs}
    missing = sorted(needed - stored)
    return f"{name}: {len(missing)} of {len(needed)} objects are missing, {missing[0]} first" if missing else ""


def _check_declared(declared: Declared) -> None:
    """Check that the tasks of a component declare the same states: any of them may have to restore any part of these.

    Raises:
        StateError: they do not, which is the program's mistake and no damage.
    """
    for component, by_task in declared.items():
        most = max(by_task, key=lambda index: len(by_task[index]))
        for index, states in by_task.items():
            if missing := by_task[most] - states:
                name, kind = min(missing)
                raise StateError(
                    f"component {component!r}, state {name!r}: task {most} declares this {kind} state, and task "
                    f"{index} does not: all tasks of a component are to declare the same"
                )


def _components(wanted: Wanted, previous: Manifest | None, objects: Iterable[ObjectRef]) -> dict[str, ComponentEntry]:
    """The components with state: those that wrote some, or had some before."""
    generations: dict[str, set[int]] = {}
    for ref in objects:
        generations.setdefault(ref.component, set()).add(ref.generation)
    found = {}
    for component, tasks in wanted.tasks.items():
        before = previous.components.get(component) if previous is not None else None
        written = generations.get(component, set())
        if len(written) > 1:
            raise CheckpointError(f"the tasks of {component!r} have state of different generations: {sorted(written)}")
        if written:
            found[component] = ComponentEntry(tasks, written.pop())
        elif before is not None and before.tasks != tasks:
            raise CheckpointError(
                f"{component!r} has {tasks} tasks instead of {before.tasks}, and none wrote its state"
            )
        elif before is not None:
            found[component] = before
    operators: dict[str, dict[str, OperatorEntry]] = {component: {} for component in found}
    for owner in wanted.owners:
        if owner.component in operators:
            operators[owner.component][owner.name] = OperatorEntry(owner.kind, owner.place)
    return {name: msgspec.structs.replace(entry, operators=operators[name]) for name, entry in found.items()}


def _due(manifest: Manifest, epoch: int) -> Iterator[Merge]:
    """What of a committed checkpoint is worth a merge."""
    for component, entry in manifest.components.items():
        for index in range(entry.tasks):
            if should_compact(manifest, component, index):
                yield Merge(manifest, component, index, epoch)
