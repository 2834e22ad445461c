"""When the objects of a task are merged into one, and the merge.

Nothing here knows what a value is: values stay bytes, keys are compared in the form of `heronpy.hashing.encode_key`. So
whoever compacts needs no code of the user, and unpickles nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from heronpy.checkpoints._header import Header, Kind, StateEntry
from heronpy.checkpoints._manifest import Manifest, ObjectRef
from heronpy.checkpoints._names import object_name
from heronpy.checkpoints._object import DELETED, Block, ObjectReader, ObjectWriter
from heronpy.checkpoints._restore import Opened, Part, order, parts_for
from heronpy.errors import CheckpointError
from heronpy.hashing import encode_key, groups_of

DELTAS_MAX: Final = 10
DELTAS_FRACTION_MAX: Final = 0.5

MERGE_BYTES: Final = 32 * 1024 * 1024
"""What is merged at once: about so many bytes, or one key group."""

_Row = tuple[StateEntry, bytes | None, Any, int]
_Rows = dict[tuple[int, str], dict[Any, _Row]]


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
        rows: _Rows = {}
        for part in parts:
            for block in readers[part.ref.name].blocks(lambda s: s.kind == Kind.KEYED, part.groups.intersection(some)):
                _apply(rows.setdefault((block.group, block.state.name), {}), block)
        _write(writer, states, rows)
        yield _taken(writer), None
    rows = {}
    for ref in own:
        for block in readers[ref.name].blocks(lambda state: state.kind != Kind.KEYED):
            _apply(rows.setdefault((groups.start, block.state.name), {}), block)
    _write(writer, states, rows)
    writer.finish()
    yield _taken(writer), ObjectRef.of(writer, object_name(header))


def _batches(groups: Iterable[int], readers: Collection[ObjectReader]) -> Iterator[list[int]]:
    """Key groups that are merged at once: as many as have so many bytes, or one."""
    some: list[int] = []
    size = 0
    for group in groups:
        own = sum(reader.bytes_of(group) for reader in readers)
        if some and size + own > MERGE_BYTES:
            yield some
            some, size = [], 0
        some.append(group)
        size += own
    yield some


def _apply(rows: dict[Any, _Row], block: Block) -> None:
    entries = block.entries
    for at, (key, value, stamp) in enumerate(zip(block.keys, entries.values, entries.stamps, strict=True)):
        rows.pop(key, None)  # so that the order is that of the last writes
        if value != DELETED:
            rows[key] = (block.state, entries.originals.get(at), value, stamp)


def _write(writer: ObjectWriter, states: dict[StateEntry, int], rows: _Rows) -> None:
    for (group, _), of_state in rows.items():
        for key, (state, original, value, stamp) in of_state.items():
            writer.add(states[state], (group,), ((Raw(encode_key(key)), original, value, stamp),))
    writer.flush()


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
