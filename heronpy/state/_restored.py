"""From what a checkpoint has of a state to the dict that a task goes on with."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from msgspec.msgpack import Ext

from heronpy.checkpoints import DELETED, Block, MergedBlock, SavedState
from heronpy.errors import CheckpointError
from heronpy.hashing import encode_key
from heronpy.shown import said, shown
from heronpy.state._key_bytes import key_bytes
from heronpy.state._other_kinds import TaskState
from heronpy.state._place import Place
from heronpy.state._schema import CODECS, READ_BACK_BYTES_MAX, Schema


def decoded(schema: Schema, place: Place, blocks: Iterable[Block]) -> tuple[dict[Any, Any], dict[Any, int]]:
    """Values and times of writes by key, of blocks that are applied in order.

    Raises:
        CheckpointError: a value cannot be decoded or migrated (names component, state and key), or the checkpoint is of
            a newer version or another kind of state.
    """
    data: dict[Any, Any] = {}
    stamps: dict[Any, int] = {}
    for (_, exact), run in groupby(blocks, key=lambda block: (block.state, not block.entries.originals)):
        if exact:
            data = _with_newest(schema, place, run, data, stamps)
        else:
            for block in run:
                decode_block(schema, place, block, data, stamps)
    return data, stamps


def _with_newest(
    schema: Schema, place: Place, blocks: Iterable[Block], data: dict[Any, Any], stamps: dict[Any, int]
) -> dict[Any, Any]:
    """`data` with blocks of one state whose keys are as they were: of each key only the newest value is decoded.

    Each value takes the place of its bytes, so that both are in memory for one of them at a time.
    """
    values: dict[Any, Any] = {}
    encoded: dict[Any, None] | None = None
    """Where some are decoded already: the keys of those that may not be."""
    for block in blocks:
        keys: Iterable[Any] = block.keys
        if isinstance(block, MergedBlock):
            assert not values
            values, encoded = block.merged, block.encoded
            keys = values
        else:
            values.update(zip(keys, block.entries.values, strict=True))
            if encoded is not None:
                encoded.update(dict.fromkeys(keys))
        if block.entries.stamps:
            stamps.update(zip(keys, block.entries.stamps, strict=True))
    decode, migrated = _decoder(schema, place, block)
    del block
    items = values.items() if encoded is None or migrated is not None else ((key, values[key]) for key in encoded)
    deleted: list[Any] = []
    key: Any = None
    try:
        for key, value in items:
            if type(value) is not Ext:
                if migrated is not None:
                    values[key] = migrated(value)
            elif value == DELETED:
                deleted.append(key)
            else:
                values[key] = decode(value.data) if migrated is None else migrated(decode(value.data))
    except BaseException as e:  # what unpickling and the user's migrate raise
        raise _undecodable(schema, place, key, e) from e
    for key in deleted:
        del values[key]
        data.pop(key, None)
    if not data:
        return values  # instead of all keys once more
    data.update(values)
    return data


def decode_block(schema: Schema, place: Place, block: Block, data: dict[Any, Any], stamps: dict[Any, int]) -> None:
    """Apply one of them. What is deleted is popped, also if it is not there. Raises as `decoded`."""
    decode, migrated = _decoder(schema, place, block)
    entries = block.entries
    key: Any = None
    if entries.stamps:
        stamps.update(zip(block.keys, entries.stamps, strict=True))
    if migrated is None and not entries.originals and Ext not in map(type, entries.values):
        data.update(zip(block.keys, entries.values, strict=True))
        return
    try:
        for at, (key, value) in enumerate(zip(block.keys, entries.values, strict=True)):
            if at in entries.originals:
                data.pop(key, None)  # else the old key would stay, which is equal and may be of another type
                stored, key = key, pickle.loads(entries.originals[at])
                if key_bytes(key) != encode_key(stored):
                    raise _changed(schema, place, key)
            if type(value) is not Ext:
                data[key] = value if migrated is None else migrated(value)
            elif value == DELETED:
                data.pop(key, None)
            else:
                data[key] = decode(value.data) if migrated is None else migrated(decode(value.data))
    except CheckpointError:
        raise
    except BaseException as e:  # what unpickling and the user's migrate raise
        raise _undecodable(schema, place, key, e) from e


def _changed(schema: Schema, place: Place, key: Any) -> CheckpointError:
    """Tuples with this key go by what it is now, maybe to another task, and would not find what is stored."""
    where = f"component {place.component!r}, state {schema.name!r}"
    of_class = f"{type(key).__module__}.{type(key).__qualname__}"
    return CheckpointError(
        f"{where}: key {shown(key)} is another one than when it was saved, as {of_class} compares other fields now, or "
        "has another __stable_key__(): let it compare what it did (a new field of a dataclass can have compare=False)"
    )


def _undecodable(schema: Schema, place: Place, key: Any, error: BaseException) -> CheckpointError:
    return CheckpointError(
        f"component {place.component!r}, state {schema.name!r}: the value of key {shown(key)} cannot be "
        f"restored: {said(error)}"
    )


def _decoder(schema: Schema, place: Place, block: Block) -> tuple[Callable[[Any], Any], Callable[[Any], Any] | None]:
    """What makes values of bytes, and what makes values of this version of those, if they are of an older one."""
    of = block.state
    where = f"component {place.component!r}, state {schema.name!r}"
    if of.kind != schema.kind:
        raise CheckpointError(f"{where}: the checkpoint has {of.kind} state of this name, and this is {schema.kind}")
    if of.codec not in CODECS:
        raise CheckpointError(f"{where}: the checkpoint has it in codec {of.codec!r}, which this release does not know")
    decode = CODECS[of.codec].decode
    if of.version == schema.version:
        return decode, None
    if of.version > schema.version:
        raise CheckpointError(
            f"{where}: the checkpoint has version {of.version}, and this program version {schema.version}: it is older"
        )
    migrate = schema.migrate
    if migrate is None:
        raise CheckpointError(
            f"{where}: the checkpoint has version {of.version}, this program version {schema.version} and no migrate()"
        )
    return decode, lambda value: migrate(of.version, value)


def restored_splits(schema: Schema, place: Place, owner: Callable[[Any], int], saved: SavedState) -> dict[Any, Any]:
    """The entries of the splits that belong to this task now."""
    if (migrate := schema.migrate) is not None:
        of_position = migrate
        schema = replace(schema, migrate=lambda old, entry: tuple(of_position(old, position) for position in entry))
    data: dict[Any, Any] = {}
    for blocks in saved.by_task.values():
        data.update(decoded(schema, place, blocks)[0])
    return {split: tuple(entry) for split, entry in data.items() if owner(split) == place.index}


def restored_component(schema: Schema, place: Place, saved: SavedState) -> dict[Any, Any]:
    """What `init_state` is given.

    Raises:
        CheckpointError: the number of tasks has changed, and some had state.
    """
    if saved.tasks == place.tasks:
        return decoded(schema, place, saved.by_task.get(place.index, ()))[0]
    if any(decoded(schema, place, blocks)[0] for blocks in saved.by_task.values()):
        raise CheckpointError(
            f"component {place.component!r}: {saved.tasks} tasks had the state of init_state(), now there are "
            f"{place.tasks}: it cannot be divided; keyed_state, split_state and task_state can"
        )
    return {}


def restored_value(state: TaskState, schema: Schema, place: Place, saved: SavedState) -> dict[Any, Any]:
    """The value that this task has now, under the key None; or nothing, if no task had one.

    Raises:
        CheckpointError: the number of tasks has changed, and there is no way to divide the value, or it failed.
    """
    if saved.tasks == place.tasks:
        return decoded(schema, place, saved.by_task.get(place.index, ()))[0]
    values = [
        data[None] for task in range(saved.tasks) if None in (data := decoded(schema, place, saved.by_task[task])[0])
    ]
    if not values:
        return {}
    if state.split is None:
        raise CheckpointError(
            f"component {place.component!r}, state {schema.name!r}: {saved.tasks} tasks had it, now there are "
            f"{place.tasks}: give it a split and a merge"
        )
    return {None: _divided(state, place, values, saved.tasks, place.tasks)[place.index]}


def _divided(state: TaskState, place: Place, values: Sequence[Any], before: int, tasks: int) -> Sequence[Any]:
    """The values of so many tasks, of those that there are of another number of tasks."""
    assert state.split is not None
    assert state.merge is not None
    where = f"component {place.component!r}, state {state.entries.schema.name!r}"
    try:
        whole = values[0] if before == 1 else state.merge(values)
        parts = [whole] if tasks == 1 else list(state.split(whole, tasks))
    except BaseException as e:  # the user's functions
        raise CheckpointError(f"{where}: its split or merge failed: {said(e)}") from e
    if len(parts) != tasks:
        raise CheckpointError(f"{where}: its split made {len(parts)} values for {tasks} tasks")
    return parts


def try_dividing(state: TaskState, place: Place) -> bool:
    """Try split and merge with a copy of the value, so that a mistake shows before they are needed.

    Returns:
        Whether there was a value to try it with, or nothing to try.

    Raises:
        CheckpointError: another number of tasks could not restore it.
    """
    if state.split is None:
        return True
    codec = CODECS[state.entries.schema.codec]
    for _, value in state.entries.peek():
        try:
            data = codec.encode(value)
            if len(data) > READ_BACK_BYTES_MAX:
                return True
            copies = [codec.decode(data) for _ in range(2)]
        except BaseException:
            return False  # that is found, and named, where it is written
        more = place.tasks + 1
        _divided(state, place, copies[:1], place.tasks, more)
        _divided(state, place, _divided(state, place, copies[1:], 1, more), more, 1)
        return True
    return False
