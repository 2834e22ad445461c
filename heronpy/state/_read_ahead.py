"""State by key that is read before the task may have it: beside the task's thread, so no code of the user may run.

Entries are merged, and decoded where their values are of builtin types. Other values stay bytes: what unpickles them
may be code of the user, which is the task's thread's to run.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.msgpack import Ext

from heronpy.checkpoints import DELETED, Entries, Kind, MergedBlock, Saved, SavedState
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


def merged_blocks(saved: Saved, pause: Callable[[], None]) -> dict[str, MergedBlock]:
    """All entries of each state by key, as far as they can be merged here.

    Args:
        saved: What was read of a checkpoint. Its blocks are taken.
        pause: Called again and again; what it raises passes.
    """
    found = {}
    for name, state in saved.states.items():
        if state.kind == Kind.KEYED and (block := _merged(state, pause)) is not None:
            found[name] = block
    return found


def _merged(state: SavedState, pause: Callable[[], None]) -> MergedBlock | None:
    """All entries of a state in one block; None if it has keys that only unpickling brings back, or several schemas."""
    values: dict[Any, Any] = {}
    stamps: dict[Any, int] = {}
    of, groups = None, range(0)
    for block in state.take_blocks():
        if block.entries.originals or of not in (None, block.state):
            return None
        of, groups = block.state, block.groups
        values.update(zip(block.keys, block.entries.values, strict=True))
        if block.entries.stamps:
            stamps.update(zip(block.keys, block.entries.stamps, strict=True))
        pause()
    if of is None:
        return None
    encoded = _decode(values, _DECODERS.get(of.codec), pause)
    times = [stamps.get(key, 0) for key in values] if stamps else []
    return MergedBlock(of, groups, (), Entries(b"", {}, (), times), values, encoded)


def _decode(values: dict[Any, Any], decode: Callable[[Any], Any] | None, pause: Callable[[], None]) -> list[Any]:
    """Put values in the places of their bytes, and remove what is deleted. The keys of those that stay bytes."""
    deleted, encoded = [], []
    for number, (key, value) in enumerate(values.items()):
        if type(value) is Ext:
            if value == DELETED:
                deleted.append(key)
            elif decode is None or type(found := _decoded(value, decode)) is Ext:
                encoded.append(key)
            else:
                values[key] = found
        if number % ENTRIES_AT_ONCE == 0:
            pause()
    for key in deleted:
        del values[key]
    return encoded


def _decoded(value: Ext, decode: Callable[[Any], Any]) -> Any:
    """The value, or an `Ext` if that is for the restore to decode."""
    try:
        return decode(value.data)
    except Exception:  # a restore says what is wrong with it, if anything is
        return value
