"""Looking into what a checkpoint has of a state, from outside of any task."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.msgpack import Ext

from heronpy.checkpoints import DELETED, Block, SavedState
from heronpy.shown import said
from heronpy.state._schema import CODECS


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Bytes of which no value could be made."""

    size: int
    why: str

    def __repr__(self) -> str:
        return f"<{self.size} bytes: {self.why}>"


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A key and its value, as they are in a checkpoint. A value is made when it is asked for."""

    key: Any
    raw: Any
    codec: str
    task: int | None
    """Whose it is, by index in the component; None for what is kept by key."""
    written_ms: int
    """When it was written, since 1970; 0: the state keeps no times."""

    @property
    def value(self) -> Any:
        """The value, as it was written: `migrate` is not called. `Undecoded` if it cannot be decoded here."""
        if type(self.raw) is not Ext:
            return self.raw
        codec = CODECS.get(self.codec)
        if codec is None:
            return Undecoded(memoryview(self.raw.data).nbytes, f"no codec {self.codec!r}")
        try:
            return codec.decode(self.raw.data)
        except Exception as e:  # what unpickling raises
            return Undecoded(memoryview(self.raw.data).nbytes, said(e))


def stored_entries(state: SavedState) -> Iterator[StoredEntry]:
    """The entries of a state, of all tasks that it was read for. What is asked for of them may be unpickled.

    Unpickling runs code that the checkpoint names: only for what the caller's own topologies have stored.
    """
    yield from _entries(state.blocks, None)
    for task, blocks in sorted(state.by_task.items()):
        yield from _entries(blocks, task)


def _entries(blocks: Iterable[Block], task: int | None) -> Iterator[StoredEntry]:
    newest: dict[object, StoredEntry] = {}
    for block in blocks:
        entries = block.entries
        for at, (key, raw) in enumerate(zip(block.keys, entries.values, strict=True)):
            if raw == DELETED:
                newest.pop(key, None)
                continue
            original = _unpickled(entries.originals[at]) if at in entries.originals else key
            written_ms = entries.stamps[at] if entries.stamps else 0
            newest[key] = StoredEntry(original, raw, block.state.codec, task, written_ms)
    yield from newest.values()


def _unpickled(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as e:  # what unpickling raises
        return Undecoded(len(data), said(e))
