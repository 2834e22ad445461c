"""A dict that knows what has changed since the last committed checkpoint, and can be written while it is changed.

Live state is a dict with a dirty set. At the marker of a checkpoint the dirty set is swapped out: O(1), whatever the
size of the state. From then on its keys are *owed*: they are written in slices, between the batches of the task, with
the values that they had at the marker. A write to a key that is owed saves the old value first: a reference to it where
it is immutable, its bytes where it is not.

A mutable value may be changed by whoever has read it, so reading one counts as a write, also by iteration; it is then
written first if it is owed. Immutable values are free to read.

The dirty set is a dict. That costs a few ns more than a set, and pays for what must not take time in proportion to the
state: it is iterated while values in it are replaced (is this key written already?), it becomes the dirty set again
when a checkpoint is aborted, and it is emptied in slices afterwards, because freeing a million keys at once takes
tens of milliseconds.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, ItemsView, Iterator, MutableMapping
from typing import Any, Final

from msgspec import Raw

from heronpy.checkpoints import DELETED, ObjectWriter, Row, encoded
from heronpy.errors import CheckpointError
from heronpy.state._immutable import ATOMS, immutable
from heronpy.state._key_bytes import comes_back, key_bytes
from heronpy.state._place import Place, shown
from heronpy.state._schema import CODECS, Schema

UNSET: Final = type("Unset", (), {"__repr__": lambda self: "UNSET"})()
"""For arguments: there is none."""
_ABSENT: Final = object()
_PICKLE_PROTOCOL = 5
_RELEASED_AT_ONCE = 64
_ROWS_AT_ONCE = 64  # hashing many keys at once is cheaper
_INT_MIN = -(1 << 63)
_INT_MAX = (1 << 63) - 1
_PLAIN_KEYS = frozenset((str, int))
_PLAIN_BYTES_MAX = 64 * 1024

Clock = Callable[[], float]


class Tracked(MutableMapping[Any, Any]):
    """Behaves as a dict. Used by one thread.

    What the engine calls: `load` at a restore; `begin` at a marker, `write` between batches until it is done, `commit`
    or `abort` once that is decided, `release` whenever there is time.
    """

    __slots__ = (
        "_checked",
        "_data",
        "_default",
        "_dirty",
        "_encode",
        "_factory",
        "_failure",
        "_garbage",
        "_keys",
        "_owed",
        "_owing",
        "_position",
        "_rows",
        "_sent",
        "_token",
        "_writer",
        "place",
        "schema",
    )

    def __init__(self, schema: Schema, place: Place, default: Any = UNSET) -> None:
        """Empty, and owed to nobody.

        Args:
            schema: Its name and the form of its values.
            place: The task that it belongs to.
            default: What a missing key reads as, or a function without arguments that makes it. It is kept under the
                key if it is mutable.

        Raises:
            TypeError: the default is a mutable value, which all keys would share.
        """
        self._factory: Callable[[], Any] | None = None
        if callable(default):
            self._factory, default = default, UNSET
        elif default is not UNSET and not immutable(default):
            kind = type(default).__name__
            raise TypeError(f"state {schema.name!r}: all keys would share this {kind}; give a function: default={kind}")
        self.schema = schema
        self.place = place
        self._default = default
        self._encode = CODECS[schema.codec].encode
        self._data: dict[Any, Any] = {}
        # By key: False if it was not there at the last marker, else anything.
        self._dirty: dict[Any, Any] = {}
        # By key that belongs to the checkpoint being written: the token if it is written, (token, value, stamp) if its
        # old value was saved, else anything. A token is of one checkpoint, so nothing of an aborted one is mistaken.
        self._owed: dict[Any, Any] | None = None
        self._owing: Iterator[tuple[Any, Any]] = iter(())
        self._token = object()
        self._sent: dict[Any, Any] = {}
        self._garbage: list[dict[Any, Any]] = []
        self._writer: ObjectWriter | None = None
        self._keys: list[Any] = []
        self._rows: list[Row] = []  # entries that the writer does not have yet, with their keys in _keys
        self._position = 0
        self._failure: CheckpointError | None = None
        self._checked: Any = UNSET

    # --- What users call

    def __getitem__(self, key: Any) -> Any:
        try:
            value = self._data[key]
        except KeyError:
            return self._missing(key)
        if type(value) in ATOMS or key in self._dirty or immutable(value):
            return value
        self._touch(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self._dirty:
            if self._owed is None and key in self._data:
                self._dirty[key] = True  # what `_touch` would do, without the price of a call
            else:
                self._touch(key)
        self._data[key] = value

    def __delitem__(self, key: Any) -> None:
        if key not in self._data:
            self._check(key)
            raise KeyError(key)
        if key not in self._dirty:
            self._touch(key)
        del self._data[key]
        if self._dirty[key] is False:
            del self._dirty[key]  # no checkpoint has heard of it

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: Any) -> bool:
        if key in self._data:
            return True
        self._check(key)
        return False

    def get(self, key: Any, default: Any = None) -> Any:
        """As of a dict: a missing key is `default`, not the state's."""
        if key not in self:
            return default
        return self[key]

    def pop(self, key: Any, default: Any = UNSET) -> Any:
        """As of a dict."""
        if key not in self:
            if default is UNSET:
                raise KeyError(key)
            return default
        value = self[key]
        del self[key]
        return value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """As of a dict."""
        if key not in self:
            self[key] = default
        return self[key]

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key, as Heron and Storm write it."""
        self[key] = value

    def delete(self, key: Any) -> Any:
        """Remove a key, as Storm writes it. Returns its value, None if there was none."""
        return self.pop(key, None)

    def enumerate(self) -> ItemsView[Any, Any]:
        """All keys with their values, as Heron writes it."""
        return self.items()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.schema.name!r}: {len(self._data)} keys>"

    # --- What kinds of state override

    def _check(self, key: Any) -> None:
        """Raise if the key does not belong to this task."""
        if key is not self._checked:
            key_bytes(key)
            self._checked = key

    def _groups(self, keys: list[Any]) -> list[int]:
        """The key groups under which entries are stored."""
        return [self.place.own.start] * len(keys)

    def _stamp(self, key: Any) -> int:
        """When the present value was written, if that matters."""
        return 0

    # --- Changes

    def _missing(self, key: Any) -> Any:
        self._check(key)
        if self._factory is not None:
            value = self._factory()
            if not immutable(value):
                self[key] = value
            return value
        if self._default is UNSET:
            raise KeyError(key)
        return self._default

    def _touch(self, key: Any) -> None:
        """Before a key that is not dirty is changed."""
        known = key in self._data
        if not known:
            self._check(key)
        if self._owed is not None:
            self._save(key)
        self._dirty[key] = known

    def _save(self, key: Any) -> None:
        """Keep what the checkpoint needs of a key, if it is owed."""
        assert self._owed is not None
        token = self._token
        status = self._owed.get(key, token)
        if status is token or (type(status) is tuple and status[0] is token):
            return
        value = self._data.get(key, _ABSENT)
        if value is _ABSENT or immutable(value):
            self._owed[key] = (token, value, self._stamp(key))
        else:
            self._owed[key] = token
            self._write_entry(key, value, self._stamp(key))

    # --- Checkpoints

    @property
    def dirty(self) -> bool:
        """Whether a checkpoint that began now would have entries."""
        return bool(self._dirty or self._sent)

    def touch_all(self) -> None:
        """Make everything dirty: the next checkpoint has all of it. Takes time in proportion to the state."""
        assert self._owed is None
        self._dirty.update(dict.fromkeys(self._data, True))

    def load(self, data: dict[Any, Any], stamps: dict[Any, int]) -> None:
        """Take over what was restored; nothing of it is dirty."""
        assert not self._data
        self._data = data

    def begin(self, writer: ObjectWriter, position: int) -> None:
        """The marker: what has changed so far belongs to this checkpoint, as it is now.

        If it is not known yet what became of the last one, that one's keys belong to it, too; with many, that takes
        time.

        Args:
            writer: Of the object.
            position: Of this state in the object's header.
        """
        assert self._owed is None, "the last checkpoint is still being written"
        self._owed = _union(self._sent, self._dirty)
        self._sent = {}
        self._dirty = {}
        self._owing = iter(self._owed.items())
        self._token = object()
        self._writer = writer
        self._position = position
        self._failure = None

    def write(self, deadline_s: float, clock: Clock) -> bool:
        """Write owed entries until a time, at least one. Whether none is left.

        Raises:
            CheckpointError: a value cannot be encoded; names component, state and key.
        """
        owed = self._owed
        if owed is None:
            return True
        token, data = self._token, self._data
        for key, status in self._owing:
            if status is token:
                continue
            if type(status) is tuple and status[0] is token:
                _, value, stamp = status
            else:
                value, stamp = data.get(key, _ABSENT), self._stamp(key)
            owed[key] = token
            self._write_entry(key, value, stamp)
            if self._failure is not None:
                break
            if clock() >= deadline_s:
                return False
        if self._failure is not None:
            raise self._failure
        self._send_rows()
        self._sent, self._owed, self._owing, self._writer = owed, None, iter(()), None
        return True

    def _write_entry(self, key: Any, value: Any, stamp: int) -> None:
        assert self._writer is not None
        if self._failure is not None:
            return
        try:
            data = DELETED if value is _ABSENT else value if _plain(value) else encoded(self._encode(value))
            if type(key) in _PLAIN_KEYS and _plain(key):
                self._rows.append((key, None, data, stamp))
            else:
                original = None if comes_back(key) else pickle.dumps(key, _PICKLE_PROTOCOL)
                self._rows.append((Raw(key_bytes(key)), original, data, stamp))
            self._keys.append(key)
            if len(self._keys) >= _ROWS_AT_ONCE:
                self._send_rows()
        except Exception as e:  # the user's __reduce__ raises whatever it likes
            # Also while user code reads or writes: it is the checkpoint that fails then, not the tuple.
            why = " ".join(str(e).split())
            self._failure = CheckpointError(
                f"component {self.place.component!r}, state {self.schema.name!r}: the value of key {shown(key)}, a "
                f"{type(value).__qualname__}, cannot be saved as {self.schema.codec}: {type(e).__name__}: {why}"
            )

    def _send_rows(self) -> None:
        """Hand collected entries to the writer."""
        assert self._writer is not None
        keys, rows = self._keys, self._rows
        self._keys, self._rows = [], []
        self._writer.add(self._position, self._groups(keys), rows)

    def commit(self) -> None:
        """The checkpoint is there: later ones are relative to it."""
        assert self._owed is None
        if self._sent:
            self._garbage.append(self._sent)
            self._sent = {}

    def abort(self) -> None:
        """The checkpoint will never be there: what belonged to it is dirty again."""
        given_back = self._sent if self._owed is None else self._owed
        self._dirty = _union(given_back, self._dirty)
        self._sent, self._owed, self._owing, self._writer, self._failure = {}, None, iter(()), None, None
        self._keys, self._rows = [], []

    def release(self, deadline_s: float, clock: Clock) -> bool:
        """Free what earlier checkpoints needed, until a time. Whether nothing is left."""
        while self._garbage:
            last = self._garbage[-1]
            for _ in range(min(_RELEASED_AT_ONCE, len(last))):
                last.popitem()
            if not last:
                self._garbage.pop()
            if clock() >= deadline_s:
                break
        return not self._garbage

    def check_invariants(self) -> None:
        """What must hold between any two calls."""
        for key, known in self._dirty.items():
            assert key in self._data or known is not False, f"a tombstone of {key!r}, which no checkpoint has"
        if self._owed is None:
            assert self._writer is None


def _plain(value: Any) -> bool:
    """Whether a value is stored as it is: None, bool, float, an int of 64 bits, short bytes or ASCII; no subclasses."""
    kind = type(value)
    if kind is int:
        return _INT_MIN <= value <= _INT_MAX  # type: ignore[no-any-return]
    if kind is str:
        return len(value) <= _PLAIN_BYTES_MAX and value.isascii()
    return value is None or kind is bool or kind is float or (kind is bytes and len(value) <= _PLAIN_BYTES_MAX)


def _union(one: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    """The keys of both, in the larger of the two, so that it takes time only for the smaller."""
    if len(one) < len(other):
        one, other = other, one
    for key in other:
        one[key] = True
    return one
