"""State by key that is read before the task may have it: beside the task's thread, so no code of the user may run.

Entries are merged, and decoded where their values are of builtin types. Other values stay bytes: what unpickles them
may be code of the user, which is the task's thread's to run.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.msgpack import Ext

from heronpy.checkpoints import DELETED, Entries, Kind, MergedBlock, Saved, SavedState, StateEntry
from heronpy.state._schema import CODECS

ENTRIES_AT_ONCE: Final = 256
"""So many are decoded between two pauses."""
_BUILTIN: Final = {
    "builtins": {"bool", "bytearray", "complex", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "uuid": {"UUID"},
}


class _Builtin(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _BUILTIN.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} may be code of the user")


def _unpickled(data: Any) -> Any:
    return _Builtin(io.BytesIO(data)).load()


_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {"pickle": _unpickled, "msgpack": CODECS["msgpack"].decode}
"""By codec. A value of another one stays as it is stored."""


@dataclass(slots=True)
class ReadEntries:
    """Entries of one state by key, each key once, and what they are newer than."""

    state: StateEntry
    groups: range
    values: dict[Any, Any]
    """As they are stored, and then decoded as far as that can be."""
    stamps: dict[Any, int]
    older: MergedBlock | None
    """What was read before; the caller owns it, and nobody changes it before `merged`."""
    encoded: dict[Any, None] = field(default_factory=dict)
    deleted: list[Any] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.values)

    def merged(self) -> MergedBlock:
        """All of it in one: `older` is changed, in a time that grows with what is newer, unless times are kept."""
        older, values, stamps = self.older, self.values, self.stamps
        if older is None:
            times = [stamps.get(key, 0) for key in values] if stamps else []
            return MergedBlock(self.state, self.groups, (), Entries(b"", {}, (), times), values, self.encoded)
        if older.entries.stamps or stamps:
            stamps = dict(zip(older.merged, older.entries.stamps, strict=False)) | stamps
        older.merged.update(values)
        for key in values:
            older.encoded.pop(key, None)
        for key in self.deleted:
            older.merged.pop(key, None)
            older.encoded.pop(key, None)
        older.encoded.update(self.encoded)
        times = [stamps.get(key, 0) for key in older.merged] if stamps else []
        return MergedBlock(self.state, self.groups, (), Entries(b"", {}, (), times), older.merged, older.encoded)


def read_entries(saved: Saved, pause: Callable[[], None]) -> dict[str, ReadEntries]:
    """The entries of each state by key, as far as they can be merged here.

    Args:
        saved: What was read of a checkpoint, maybe on top of what was read of an older one. Its blocks are taken.
        pause: Called again and again; what it raises passes.
    """
    found = {}
    for name, state in saved.states.items():
        if state.kind == Kind.KEYED and (entries := _entries(state, pause)) is not None:
            found[name] = entries
    return found


def _entries(state: SavedState, pause: Callable[[], None]) -> ReadEntries | None:
    """All of a state; None if it has keys that only unpickling brings back, or several schemas."""
    values: dict[Any, Any] = {}
    stamps: dict[Any, int] = {}
    found: ReadEntries | None = None
    for block in state.take_blocks():
        if block.entries.originals or (found is not None and found.state != block.state):
            return None
        older = block if isinstance(block, MergedBlock) else None
        found = found or ReadEntries(block.state, block.groups, values, stamps, older)
        if older is not None:
            continue
        values.update(zip(block.keys, block.entries.values, strict=True))
        if block.entries.stamps:
            stamps.update(zip(block.keys, block.entries.stamps, strict=True))
        pause()
    if found is not None:
        _decode(found, _DECODERS.get(found.state.codec), pause)
    return found


def _decode(entries: ReadEntries, decode: Callable[[Any], Any] | None, pause: Callable[[], None]) -> None:
    """Put values in the places of their bytes, and remove what is deleted."""
    values = entries.values
    for number, (key, value) in enumerate(values.items()):
        if type(value) is Ext:
            if value == DELETED:
                entries.deleted.append(key)
            elif decode is None or type(found := _decoded(value, decode)) is Ext:
                entries.encoded[key] = None
            else:
                values[key] = found
        if number % ENTRIES_AT_ONCE == 0:
            pause()
    for key in entries.deleted:
        del values[key]


def _decoded(value: Ext, decode: Callable[[Any], Any]) -> Any:
    """The value, or an `Ext` if that is for the restore to decode."""
    try:
        return decode(value.data)
    except Exception:  # a restore says what is wrong with it, if anything is
        return value
