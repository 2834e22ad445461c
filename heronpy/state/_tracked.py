"""A dict that knows what has changed since the last marker, and can be written while it is changed.

Live state is a pile of dicts. What was written since the last marker is in the *front*; reads that miss it look below.
So a key that is read and written again and again costs what it costs in a dict, and being in the front is what makes it
dirty: there is no second set to keep. At the marker of a checkpoint the front becomes the *layer* of that checkpoint,
under a new front: O(1), whatever the size of the state. It is written in slices, between the batches of the task
(`_owed.py`), and nothing has to be saved from being overwritten meanwhile, because a write to a key goes to
the front. When the checkpoint is committed, the layer sinks into the *base*, in slices, too, because moving a million
keys at once takes a second. When it is aborted, it is written again with the next one.

A deleted key that something below still has is noted down in the layer above, and hidden by that.

A mutable value may be changed by its reader, so reading one that is below the front moves it there, also by
iteration; if it is owed to the checkpoint that is being written, it is written first. Immutable values are free to
read.

If half of the keys or more have changed, all of them are written: a base. That costs little more than the changes, and
spares a merge, which costs more than both. Then it does not pay, either, to track the changes of the next
intervals: that is a second lookup in cold memory for every key. So the layer is written *in place*: writes go to it,
with the old values saved for the checkpoint (`_keyed.py`), and once written it is the front again, with everything
in it dirty. Every so often changes are distinguished again, to see whether they are fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, Final

from heronpy.checkpoints import ObjectWriter
from heronpy.state._dict_like import UNSET, DictLike
from heronpy.state._immutable import ATOMS, immutable
from heronpy.state._key_bytes import check_lasting, key_bytes
from heronpy.state._layers import Clock, Layer, Values, freed, merged, sunk
from heronpy.state._owed import ENTRIES_AT_ONCE, Owed, Target, Written
from heronpy.state._place import Place
from heronpy.state._schema import Schema

if TYPE_CHECKING:
    from heronpy.state._spill import Spill

BASE_FRACTION: Final = 0.5
"""If so large a part of the keys has changed, all of them are written."""
IN_PLACE: Final = 32
"""So many bases are written in place before changes are distinguished again."""
STILL_FRACTION: Final = 1 / 128
"""If less than this part of the keys changes while all of them are written, they are distinguished at once."""
_ABSENT: Final = object()


class Tracked(DictLike):
    """Behaves as a dict. Used by one thread.

    What the engine calls: `load` at a restore; `begin` at a marker, `write` between batches until it is done, `commit`
    or `abort` once that is decided, `release` whenever there is time.
    """

    __slots__ = (
        "_base",
        "_checked",
        "_default",
        "_deleted",
        "_factory",
        "_front",
        "_garbage",
        "_in_place",
        "_known",
        "_layer",
        "_lower",
        "_owed",
        "_read_back",
        "_sinking",
        "_size",
        "_spill",
        "_untracked",
        "place",
        "schema",
    )

    def __init__(self, schema: Schema, place: Place, default: Any = UNSET) -> None:
        """Empty, and owed to no checkpoint.

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
        self._size = 0
        self._base: Values = {}
        self._sinking: Layer | None = None  # committed
        self._layer: Layer | None = None  # of a checkpoint that is not decided, or was aborted
        self._owed: Owed | None = None  # that checkpoint, while it is being written
        self._in_place = 0  # how many more bases are to be written in place
        self._untracked = False  # whether the changes since the last committed checkpoint are not distinguished
        self._garbage: list[Values] = []
        self._read_back: set[type] = set()
        self._spill: Spill | None = None  # where what is committed may go to a file
        self._known: Any = _ABSENT  # the key that was found last: it need not be looked for again to be written
        self._checked: Any = UNSET  # a key that belongs to this task
        self._new_front({}, {})

    # --- What users call

    def __getitem__(self, key: Any) -> Any:
        front = self._front
        if key in front:
            self._known = key
            return front[key]
        value = self._read_below(key)
        return self._missing(key) if value is _ABSENT else value

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is not self._known and key not in self._front:
            self._enter(key)
        self._front[key] = value

    def __delitem__(self, key: Any) -> None:
        below = self._is_below(key)
        if key in self._front:
            del self._front[key]
        elif not below:
            self._check(key)
            raise KeyError(key)
        if below:
            self._deleted[key] = (
                None  # what is below stays: without it, a key that is set again would leave no tombstone
            )
        self._known = _ABSENT
        self._size -= 1

    def __iter__(self) -> Iterator[Any]:
        # The oldest first: reading moves mutable values to the front, which must not grow while it is iterated.
        hiding = any(hidden for hidden, _ in self._lower)
        older: list[Values] = []
        for values in (*(values for _, values in reversed(self._lower)), self._front):
            keys: Iterator[Any] = iter(values)
            for other in older:
                keys = filterfalse(other.__contains__, keys)
            yield from filter(self.__contains__, keys) if hiding else keys
            older.append(values)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: Any) -> bool:
        if key in self._front or self._is_below(key):
            return True
        self._check(key)
        return False

    def get(self, key: Any, default: Any = None) -> Any:
        """As of a dict: a missing key is `default`, not the state's."""
        front = self._front
        if key in front:
            self._known = key
            return front[key]
        value = self._read_below(key)
        if value is _ABSENT:
            self._check(key)
            return default
        return value

    def peek(self) -> Iterator[tuple[Any, Any]]:
        """All keys with their values, which must not be changed: unlike reading, this makes nothing dirty.

        What is in a file is read as it is asked for, and not kept. Meanwhile values may be read as usual.
        """
        yield from self._front.items()
        newer: list[Container[Any]] = [self._front]
        for hidden, values in self._lower:
            newer.append(hidden)
            for key, value in values.items():
                for one in newer:
                    if key in one:
                        break
                else:
                    yield key, value.value if type(value) is Written else value
            newer.append(values)

    def copy(self) -> dict[Any, Any]:
        """A dict of what `peek` has."""
        return dict(self.peek())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.schema.name!r}: {self._size} keys>"

    # --- What kinds of state override

    def _check(self, key: Any) -> None:
        """Raise if the key does not belong to this task."""
        if key is not self._checked:
            (check_lasting if self.place.lasting else key_bytes)(key)
            self._checked = key

    def _groups(self, keys: Sequence[Any]) -> Sequence[int]:
        """The key groups under which entries are stored."""
        return [self.place.own.start] * len(keys)

    def _set_in_place(self, in_place: bool) -> bool:
        """Have writes go to the layer, or to the front again. Whether this kind of state can do so."""
        return False

    _stamp: Callable[..., int] | None = None
    """As of `Target`; None if that does not matter."""

    # --- Below the front

    def _is_below(self, key: Any) -> bool:
        for hidden, values in self._lower:
            if key in hidden:
                return False
            if key in values:
                return True
        return False

    def _find_below(self, key: Any) -> Any:
        """What is there, as it is there."""
        for hidden, values in self._lower:
            if key in hidden:
                return _ABSENT
            value = values.get(key, _ABSENT)
            if value is not _ABSENT:
                return value
        return _ABSENT

    def _look_at(self, key: Any) -> Any:
        """A value that is there, for somebody who does not change it."""
        value = self._front[key] if key in self._front else self._find_below(key)
        return value.value if type(value) is Written else value

    def _read_below(self, key: Any) -> Any:
        """A value for somebody who may change it if it is mutable."""
        value = self._find_below(key)
        if value is _ABSENT:
            return value
        if type(value) in ATOMS:
            self._known = key
            return value
        owed = self._owed
        if type(value) is Written:
            if value.by is owed or value.by is None:
                owed = None
            value = value.value
        elif immutable(value):
            self._known = key
            return value
        if owed is not None:
            owed.save(key, value)
        self._front[key] = value
        return value

    def _enter(self, key: Any) -> None:
        """Before a key is put into the front."""
        if not self._is_below(key):
            if self._deleted.pop(key, self) is self:
                self._check(key)
            self._size += 1

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

    def _new_front(self, front: Values, deleted: Values) -> None:
        self._front, self._deleted = front, deleted
        self._relink()

    def _relink(self) -> None:
        """What is below the front, the newest first, each with the keys that are hidden by what is above it."""
        lower: list[tuple[Values, Any]] = []
        hidden = self._deleted
        for layer in (self._layer, self._sinking):
            if layer is not None:
                lower.append((hidden, layer[0]))
                hidden = layer[1]
        lower.append((hidden, self._base))
        if self._spill is not None:
            lower.append(({}, self._spill.cold))
        self._lower = tuple(lower)

    # --- Checkpoints

    @property
    def changed(self) -> int:
        """How many entries a checkpoint would have that began now, if it had only what has changed; about."""
        layer, hidden = self._layer or ({}, {})
        return len(self._front) + len(self._deleted) + len(layer) + len(hidden)

    @property
    def unchanged(self) -> int:
        """How many keys there were before that, about."""
        cold = len(self._spill.cold) if self._spill else 0
        return len(self._base) + (len(self._sinking[0]) if self._sinking else 0) + cold

    @property
    def needs_base(self) -> bool:
        """Whether the next object must be a base: it is not known which keys were deleted."""
        return self._untracked

    def touch_all(self) -> None:
        """Make everything dirty: the next checkpoint has all of it."""
        assert self._layer is None
        assert not self._front
        self._base, front = {}, self._base
        self._new_front(front, {})

    def load(self, data: Values, stamps: dict[Any, int]) -> None:
        """Take over what was restored; nothing of it is dirty."""
        assert not self._size
        self._base = data
        self.loaded(len(data))

    def loaded(self, size: int) -> None:
        """So many keys were restored."""
        self._size = size
        self._relink()

    def begin(self, writer: ObjectWriter, position: int, *, base: bool, at_once: int = ENTRIES_AT_ONCE) -> None:
        """The marker: what has changed so far belongs to this checkpoint, as it is now.

        If it is not known yet what became of the last one, or it was aborted, that one's keys belong to it, too; with
        many, that takes time.

        Args:
            writer: Of the object.
            position: Of this state in the object's header.
            base: Whether everything is written.
            at_once: How many plain entries are written between two reads of the clock.
        """
        assert self._owed is None, "the last checkpoint is still being written"
        if self._spill is not None:
            self._spill.begun(self.changed)
        elif self._untracked:
            self._in_place -= 1
        else:
            self._in_place = IN_PLACE if 0 < BASE_FRACTION * self.unchanged <= self.changed else 0
        front = self._front, self._deleted
        layer = self._layer = front if self._layer is None else merged(self._layer, front)
        self._new_front({}, {})
        target = Target(writer, position, self.schema, self.place, self._groups, self._stamp, self._read_back, at_once)
        cold = self._spill.cold if self._spill and base else None
        below: list[Values] | None = [values for _, values in self._lower[1:]] if base else None
        if cold is not None and below is not None:
            below.pop()
        in_place = base and self._in_place > 0 and self._size >= at_once and self._set_in_place(True)
        self._untracked = self._untracked or in_place
        self._owed = Owed(target, *layer, below, in_place=in_place, cold=cold)

    def write(self, deadline_s: float, clock: Clock) -> bool:
        """Write owed entries until a time, at least one. Whether none is left.

        Raises:
            CheckpointError: a value cannot be encoded; names component, state and key.
        """
        owed = self._owed
        if owed is None:
            return True
        # First what was committed sinks: a second such layer would be one more to search.
        if not (self.release(deadline_s, clock) and owed.write(deadline_s, clock)):
            return False
        if owed.in_place:
            assert self._layer is not None
            layer = self._layer[0]
            if not sunk(self._front, self._deleted, layer, deadline_s, clock):
                return False
            if len(owed.saved) < STILL_FRACTION * self._size:
                self._in_place = 0
            self._garbage.append(owed.saved)
            self._layer = None
            self._set_in_place(False)
            self._new_front(layer, {})
        if owed.base:
            self._garbage.append(self._base)  # what was the layer has it all
            self._base = {}
        self._owed = None
        self._relink()
        return True

    def commit(self) -> None:
        """The checkpoint is there: later ones are relative to it."""
        assert self._owed is None
        if self._layer is not None:
            assert self._sinking is None
            if self._base or self._spill:
                self._sinking = self._layer
            else:
                self._base = self._layer[0]
            self._layer = None
            self._untracked = False
            self._relink()

    def abort(self) -> None:
        """The checkpoint will never be there: what belonged to it is written with the next one."""
        self._set_in_place(False)
        self._owed = None

    def release(self, deadline_s: float, clock: Clock) -> bool:
        """Let sink what was committed, and free what is not needed, until a time. Whether nothing is left."""
        if not (self._sink(deadline_s, clock) and self._make_room(deadline_s, clock)):
            return False
        while self._garbage and freed(self._garbage[-1], deadline_s, clock):
            self._garbage.pop()
        return not self._garbage

    def _sink(self, deadline_s: float, clock: Clock) -> bool:
        """Whether all has sunk."""
        if self._sinking is None:
            return True
        if self._spill is not None:
            if not self._spill.sunk(self._sinking, self._base, deadline_s, clock):
                return False
        elif not sunk(*self._sinking, self._base, deadline_s, clock):
            return False
        self._sinking = None
        self._relink()
        return True

    def _make_room(self, deadline_s: float, clock: Clock) -> bool:
        """Whether what is committed has room in memory, or cannot leave it now."""
        spill, owed = self._spill, self._owed
        if spill is None or (owed is not None and owed.base):  # whose keys must not change
            return True
        dirty = sum(map(len, (self._front, *(layer[0] for layer in (self._layer, self._sinking) if layer))))
        return spill.evicted(self._base, dirty, self._base_ms, self._evicted, deadline_s, clock)

    def _base_ms(self, key: Any) -> int:
        """When the value of a key in the base was written, if that matters and nothing above has a newer one."""
        return 0

    def _evicted(self, key: Any) -> None:
        """A key with such a time is in memory no more."""

    def check_invariants(self) -> None:
        """What must hold between any two calls."""
        assert self._size == len(self.copy())
        assert not self._front.keys() & self._deleted.keys()
        if self._layer is None:
            assert self._owed is None
