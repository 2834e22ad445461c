"""When the objects of a task are merged into one, and the merge.

Nothing here knows what a value is: values stay bytes, keys are compared in the form of `heronpy.hashing.encode_key`. So
a compaction needs no code of the user, and unpickles nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import filterfalse, repeat
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext

from heronpy.checkpoints._header import Header, Kind, StateEntry
from heronpy.checkpoints._manifest import Manifest, ObjectRef
from heronpy.checkpoints._names import object_name
from heronpy.checkpoints._object import DELETED, Block, ObjectReader
from heronpy.checkpoints._object_writer import ObjectWriter
from heronpy.checkpoints._restore import Opened, Part, order, parts_for
from heronpy.errors import CheckpointError
from heronpy.hashing import encode_key, groups_of, key_groups

DELTAS_MAX: Final = 10
DELTAS_FRACTION_MAX: Final = 0.5

MERGE_BYTES: Final = 32 * 1024 * 1024
"""What is merged at once: about so many bytes, or one key group."""

_RUN_KEYS_MAX = 8192
_PLAIN_KEYS = (frozenset((str,)), frozenset((int,)))
_PLAIN_VALUES = frozenset((type(None), bool, int, float))


def should_compact(manifest: Manifest, component: str, index: int) -> bool:
    """Whether the objects of a task are worth a merge: more than 10 deltas, or deltas of more than half of the base.

    Of an object that covers more key groups than the task has, its share counts.
    """
    groups = groups_of(index, manifest.components[component].tasks, manifest.groups)
    # Those that overlap, before they are sorted: this is asked for every task of every checkpoint.
    start, stop = groups.start, groups.stop
    refs = (r for r in manifest.objects if r.first_group < stop and start < r.end_group and r.component == component)
    parts = parts_for(refs, groups, manifest.name)
    deltas = [part for part in parts if part.ref.since != 0]
    base = sum(_share(part) for part in parts if part.ref.since == 0)
    return len(deltas) > DELTAS_MAX or sum(map(_share, deltas)) > DELTAS_FRACTION_MAX * base


def _share(part: Part) -> float:
    return part.ref.size * len(part.groups) / len(part.ref.groups)


def compact(
    manifest: Manifest, component: str, index: int, epoch: int, opened: Opened
) -> Iterator[tuple[list[bytes], ObjectRef | None]]:
    """Merge a task's objects into a base of the same checkpoint, a key group at a time.

    Yields:
        Pieces of the object, in order; with the last ones, how a manifest names it.

    Raises:
        CheckpointError: a part is missing, damaged or another object's.
    """
    entry = manifest.components[component]
    groups = groups_of(index, entry.tasks, manifest.groups)
    refs = order(ref for ref in manifest.objects if ref.component == component)
    parts = parts_for(refs, groups, manifest.name)
    own = [ref for ref in refs if (ref.generation, ref.index) == (entry.generation, index)]
    bases = [at for at, ref in enumerate(own) if ref.since == 0]
    own = own[bases[-1] if bases else 0 :]
    readers = {ref.name: opened(ref) for ref in [*(part.ref for part in parts), *own]}
    for ref in refs:
        if ref.name in readers:
            manifest.check(ref, readers[ref.name])
    by_key = (state for part in parts for state in readers[part.ref.name].header.states if state.kind == Kind.KEYED)
    otherwise = (state for ref in own for state in readers[ref.name].header.states if state.kind != Kind.KEYED)
    # A state stays named when none of its entries is left.
    states = {state: at for at, state in enumerate(dict.fromkeys((*by_key, *otherwise)))}
    header = Header(
        topology_id=manifest.topology_id,
        component=component,
        index=index,
        tasks=entry.tasks,
        generation=entry.generation,
        checkpoint_id=manifest.checkpoint_id,
        since=0,
        epoch=epoch,
        groups=manifest.groups,
        first_group=groups.start,
        end_group=groups.stop,
        states=tuple(states),
    )
    writer = ObjectWriter(header)
    for some in _batches(groups, readers.values()):
        wanted = frozenset(some)
        merged = _Merged()
        for part in parts:
            for block in readers[part.ref.name].blocks(lambda s: s.kind == Kind.KEYED, part.groups & wanted):
                merged.apply(block)
        merged.write(writer, states, lambda keys: key_groups(keys, manifest.groups))
        yield _taken(writer), None
    merged = _Merged()
    for ref in own:
        for block in readers[ref.name].blocks(lambda state: state.kind != Kind.KEYED):
            merged.apply(block)
    merged.write(writer, states, lambda keys: [groups.start] * len(keys))
    writer.finish()
    yield _taken(writer), ObjectRef.of(writer, object_name(header))


def _batches(groups: Iterable[int], readers: Collection[ObjectReader]) -> Iterator[list[int]]:
    """Key groups that are merged at once: as many as have so many bytes, or one."""
    some: list[int] = []
    size = 0.0
    sizes = [reader.bytes_by_group() for reader in readers]
    for group in groups:
        own = sum(of.get(group, 0.0) for of in sizes)
        if some and size + own > MERGE_BYTES:
            yield some
            some, size = [], 0.0
        some.append(group)
        size += own
    yield some


class _Merged:
    """Entries by the name of their state and key. What is rare is kept apart, so that the rest takes no loop."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Any, Any]] = {}
        self._stamps: dict[str, dict[Any, int]] = {}
        self._originals: dict[str, dict[Any, tuple[int, bytes]]] = {}
        """Pickled keys, with their groups: those are known only from where they were."""
        self._states: dict[str, StateEntry] = {}
        self._others: dict[str, dict[Any, StateEntry]] = {}
        """Where there are several of one name: of each key."""

    def apply(self, block: Block) -> None:
        """Add newer entries."""
        name, keys, entries = block.state.name, block.keys, block.entries
        values = self._values.setdefault(name, {})
        others = self._others.get(name)
        if others is None and self._states.setdefault(name, block.state) != block.state:
            others = self._others[name] = dict.fromkeys(values, self._states[name])
        if others is not None:
            others.update(dict.fromkeys(keys, block.state))
        values.update(zip(keys, entries.values, strict=True))
        if entries.stamps or name in self._stamps:
            self._stamps.setdefault(name, {}).update(zip(keys, entries.stamps or repeat(0), strict=False))
        if entries.originals or name in self._originals:
            originals = self._originals.setdefault(name, {})
            for at, key in enumerate(keys):
                originals.pop(key, None)
                if at in entries.originals:
                    originals[key] = block.groups.start, entries.originals[at]
        if Ext in map(type, entries.values):
            for key, value in zip(keys, entries.values, strict=True):
                if value == DELETED:
                    values.pop(key, None)

    def write(
        self, writer: ObjectWriter, states: dict[StateEntry, int], groups_of: Callable[[Sequence[Any]], list[int]]
    ) -> None:
        """Write what is left, in the order of the key groups: a range of them is read at once."""
        found: dict[tuple[int, str, StateEntry], list[Any]] = {}
        for name, values in self._values.items():
            state, others = self._states[name], self._others.get(name, {})
            originals = self._originals.get(name, {})
            keys = list(filterfalse(originals.__contains__, values))
            groups = groups_of(keys)
            if originals:
                keys += (known := [key for key in originals if key in values])
                groups += (originals[key][0] for key in known)
            for key, group in zip(keys, groups, strict=True):
                at = (group, name, others.get(key, state) if others else state)
                found.setdefault(at, []).append(key)
        for (group, name, state), keys in sorted(found.items(), key=lambda item: item[0][:2]):
            self._write(writer, states[state], group, name, keys)
        writer.flush()

    def _write(self, writer: ObjectWriter, state: int, group: int, name: str, keys: list[Any]) -> None:
        values = list(map(self._values[name].__getitem__, keys))
        originals, stamps = self._originals.get(name, {}), self._stamps.get(name, {})
        if (
            not originals
            and frozenset(map(type, keys)) in _PLAIN_KEYS
            and _PLAIN_VALUES.issuperset(map(type, values))
            and len(keys) <= _RUN_KEYS_MAX
        ):
            with contextlib.suppress(UnicodeEncodeError, OverflowError):
                writer.add_run(state, keys, values, [stamps.get(key, 0) for key in keys] if stamps else [], group)
                return
        for key, value in zip(keys, values, strict=True):
            original = originals[key][1] if key in originals else None
            writer.add(state, group, (Raw(encode_key(key)), original, value, stamps.get(key, 0)))


def _taken(writer: ObjectWriter) -> list[bytes]:
    chunks, writer.chunks = writer.chunks, []
    return chunks


def next_manifest(previous: Manifest | None, manifest: Manifest, compacted: Iterable[ObjectRef] = ()) -> Manifest:
    """The manifest of a checkpoint whose tasks wrote only what has changed.

    Args:
        previous: Of the last committed checkpoint; None for the first.
        manifest: With the new objects only.
        compacted: Objects that were merged meanwhile.

    Returns:
        `manifest` with all older objects that it still needs.

    Raises:
        CheckpointError: it is not newer, or of another topology or number of key groups.
    """
    if previous is None:
        older: Sequence[ObjectRef] = ()
    else:
        if (previous.topology_id, previous.groups) != (manifest.topology_id, manifest.groups):
            raise CheckpointError(
                f"{manifest.name} does not follow {previous.name}: that is of another topology or number of key groups"
            )
        if previous.checkpoint_id >= manifest.checkpoint_id:
            raise CheckpointError(f"{manifest.name} is not newer than {previous.name}")
        older = previous.objects
    refs = {ref.name: ref for ref in (*older, *compacted, *manifest.objects) if ref.component in manifest.components}
    return msgspec.structs.replace(manifest, objects=tuple(needed(refs.values(), manifest)))


def needed(refs: Iterable[ObjectRef], manifest: Manifest) -> list[ObjectRef]:
    """The objects that a restore may read: those that no newer base hides."""
    found: list[ObjectRef] = []
    hidden: dict[str, set[int]] = {}
    hidden_tasks: set[tuple[str, int, int]] = set()
    for ref in reversed(order(refs)):
        by_key = not hidden.setdefault(ref.component, set()).issuperset(ref.groups)
        task = (ref.component, ref.generation, ref.index)
        otherwise = ref.generation == manifest.components[ref.component].generation and task not in hidden_tasks
        if by_key or otherwise:
            found.append(ref)
        if ref.since == 0:
            hidden[ref.component].update(ref.groups)
            hidden_tasks.add(task)
    return found[::-1]
