"""What a state owes to the checkpoint that is being written, and how it is written: in runs, between batches."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import filterfalse, islice, repeat
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from heronpy.checkpoints import DELETED, ObjectWriter, encoded
from heronpy.errors import CheckpointError, TupleError
from heronpy.shown import said, shown
from heronpy.state._immutable import immutable
from heronpy.state._key_bytes import comes_back, key_bytes
from heronpy.state._layers import Clock, Values
from heronpy.state._place import Place
from heronpy.state._schema import CODECS, READ_BACK_BYTES_MAX, Schema, check_reads_back

if TYPE_CHECKING:
    from heronpy.state._cold import ColdEntries

ENTRIES_AT_ONCE: Final = 1024
"""Plain entries are written in runs of so many: about half a millisecond, most of it for cold memory."""
ORDERED_BYTES: Final = 64
"""Plain entries with values of fewer bytes are written in blocks of any key group: to find its group would cost more
than to write such an entry, and others read few bytes of it."""

_PICKLE_PROTOCOL = 5
_RUN_BYTES_MAX = 512 * 1024
_INT_MIN = -(1 << 63)
_INT_MAX = (1 << 63) - 1
_PLAIN_BYTES_MAX = 64 * 1024
_PLAIN_KEYS = (frozenset((str,)), frozenset((int,)))
_OF_NO_LENGTH = frozenset((type(None), bool, int, float))
_OF_SOME_LENGTH = frozenset((str, bytes))
_MAYBE_PLAIN = _OF_NO_LENGTH | _OF_SOME_LENGTH


class Written:
    """Stands for a mutable value in a layer: this checkpoint has it as it was at the marker. None: each has."""

    __slots__ = ("by", "value")

    def __init__(self, by: Owed | None, value: Any) -> None:
        self.by, self.value = by, value


@dataclass(frozen=True, slots=True)
class Target:
    """Where a state writes to, and what it needs for that."""

    writer: ObjectWriter
    position: int
    """Of the state in the object's header."""
    schema: Schema
    place: Place
    groups: Callable[[Sequence[Any]], Sequence[int]]
    """The key groups that keys are stored under."""
    stamp: Callable[..., int] | None
    """`stamp(key)`: when the value of a key was written, as of the marker; None if that does not matter. Of a mutable
    one `stamp(key, data)`, with what it is saved as."""
    read_back: set[type]
    """Types of which a value was written, and could be read back. The first of each is tried."""
    at_once: int = ENTRIES_AT_ONCE


class Owed:
    """The entries of one state in one checkpoint.

    First `changed`, then, in a base, everything `below` that was not changed. The keys of the two must not change while
    this is written. Values may: by `Written`, and in place by any other if the old one is put into `saved`.
    """

    def __init__(
        self,
        target: Target,
        changed: Values,
        deleted: Values,
        below: Sequence[Values] | None,
        *,
        in_place: bool = False,
        cold: ColdEntries | None = None,
    ) -> None:
        """Nothing is written.

        Args:
            target: Where to.
            changed: Keys that have changed, with their values.
            deleted: Keys that are gone.
            below: The older layers, the oldest last, if the object is a base and has everything. Of these, all but the
                last must be empty when `write` is called.
            in_place: Whether values of `changed` are replaced while it is written.
            cold: What is not in memory, and older than all of that, if the object is a base.
        """
        self.in_place = in_place
        self.saved: Values = {}
        """Values at the marker, where they were replaced since then."""
        self.done = False
        """Whether all is written."""
        self._target = target
        self._encode = CODECS[target.schema.codec].encode
        self._changed = changed
        self._deleted = deleted
        self._below = below
        self._holders = (changed,) if below is None else (changed, *below)
        self._owing: Iterator[tuple[Any, Any]] = iter(changed.items())
        self._rest: Iterator[Any] | None = None
        self._one_by_one: Iterator[tuple[Any, int]] = iter(())
        """Keys of a run that is not plain, with their groups; their values are looked up when it is their turn."""
        self._plain_keys = False
        """Whether all keys of that run are stored as they are."""
        self._tombstones: Iterator[Any] = iter(deleted if below is None else {})
        self._cold = iter(()) if cold is None else cold.rows()
        self._failure: CheckpointError | None = None

    @property
    def base(self) -> bool:
        """Whether it is everything."""
        return self._below is not None

    def save(self, key: Any, value: Any) -> None:
        """Write the mutable value of a key now, if it is owed: it is about to be changed."""
        if self.done or key in self.saved:
            return
        for values in self._holders:
            if key in values:
                self._mark(values, key, value)
                self._write_row(key, value, self._target.groups((key,))[0])
                return

    def _mark(self, values: Values, key: Any, value: Any) -> None:
        """Note down that a mutable value is written."""
        # A layer that is written in place is the front afterwards, where marks are not looked for.
        (self.saved if self.in_place else values)[key] = Written(self, value)

    def write(self, deadline_s: float, clock: Clock) -> bool:
        """Write until a time: one run, and more as long as those would end by then. Whether nothing is left.

        Raises:
            CheckpointError: a value cannot be encoded; names component, state and key.
        """
        more = not self.done
        now_s = clock()
        while more and self._failure is None:
            began_s = now_s
            try:
                more = (
                    self._write_one_by_one(deadline_s, clock)
                    or self._write_run()
                    or self._write_cold()
                    or self._write_tombstones()
                )
            except (KeyError, TupleError) as e:
                self._fail_key(e)
            now_s = clock()
            if now_s + (now_s - began_s) >= deadline_s:
                break
        if self._failure is not None:
            raise self._failure
        self.done = not more
        return self.done

    def _write_run(self) -> bool:
        """Write the next run, or have it written one by one. Whether there was one."""
        at_once = self._target.at_once
        if items := list(islice(self._owing, at_once)):
            keys, values = zip(*items, strict=True)
            if self.saved:
                values = tuple(map(self.saved.get, keys, values))
        elif self._below is None:
            return False
        else:
            if self._rest is None:
                assert not any(self._below[:-1])
                self._rest = iter(self._below[-1])
            if not (rest := list(islice(self._rest, at_once))):  # also if all of them have changed: it takes time
                return False
            keys = tuple(filterfalse(self._changed.__contains__, filterfalse(self._deleted.__contains__, rest)))
            values = tuple(map(self._below[-1].__getitem__, keys))
            self._changed.update(zip(keys, values, strict=True))
        bytes_ = _plain_bytes(keys, values)
        if bytes_ is None or bytes_ > _RUN_BYTES_MAX:
            written = False
        elif bytes_ < ORDERED_BYTES * len(keys):
            written = self._add_run(keys, values)
        else:
            written = self._add_ordered(keys, values)
        if not written:
            self._one_by_one = zip(keys, self._groups(keys), strict=True)
            self._plain_keys = _plain_keys(keys) and all(map(_plain, keys))
        return True

    def _add_run(self, keys: Sequence[Any], values: Sequence[Any], stamps: Sequence[int] | None = None) -> bool:
        """Hand a run to the writer. Whether it could be encoded as it is."""
        target = self._target
        if target.stamp is None:
            stamps = []
        elif stamps is None:
            stamps = list(map(target.stamp, keys))
        try:
            target.writer.add_run(target.position, keys, values, stamps)
        except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, a large int
            return False
        return True

    def _add_ordered(self, keys: Sequence[Any], values: Sequence[Any]) -> bool:
        """Hand plain entries to the writer, each under its key group. Whether they can be encoded as they are."""
        if not (all(map(_plain, keys)) and all(map(_plain, values))):
            return False
        target = self._target
        stamps = repeat(0) if target.stamp is None else map(target.stamp, keys)
        for key, group, value, stamp in zip(keys, target.groups(keys), values, stamps, strict=False):
            target.writer.add(target.position, group, (key, None, value, stamp))
        return True

    def _write_one_by_one(self, deadline_s: float, clock: Clock) -> bool:
        """Whether there was anything."""
        any_ = False
        changed, saved, target = self._changed, self.saved, self._target
        encode, add, position = self._encode, target.writer.add_encoded, target.position
        usual = target.read_back - _MAYBE_PLAIN if self._plain_keys and target.stamp is None else set[type]()
        for key, group in self._one_by_one:
            any_ = True
            value = changed[key]
            if type(value) in usual and not (saved and key in saved):
                try:  # as `_write_row`, which is slower by half: its calls take longer than what they do
                    add(position, group, key, encode(value))
                except BaseException as e:
                    self._fail(key, value, e)
                    break
                if not immutable(value):
                    self._mark(changed, key, value)
                if clock() >= deadline_s:
                    break
                continue
            replaced = key in saved
            value = saved[key] if replaced else changed[key]
            if type(value) is Written:
                by, value = value.by, value.value
                if self.in_place and not replaced:
                    changed[key] = value
                if by is self:
                    continue
            self._write_row(key, value, group)
            if not (replaced or immutable(value)):
                self._mark(changed, key, value)
            if self._failure is not None or clock() >= deadline_s:
                break
        return any_

    def _write_cold(self) -> bool:
        """Write some of what is not in memory, as it is stored. Whether there was any."""
        if (rows := next(self._cold, None)) is None:
            return False
        target, changed, deleted = self._target, self._changed, self._deleted
        rows = [row for row in rows if row[0] not in changed and row[0] not in deleted]
        if not rows:
            return True
        for (key, original, value, stamp), group in zip(rows, target.groups([row[0] for row in rows]), strict=True):
            target.writer.add(target.position, group, (_stored_key(key), original, value, stamp))
        return True

    def _write_tombstones(self) -> bool:
        keys = list(islice(self._tombstones, self._target.at_once))
        if not keys:
            return False
        values = tuple(repeat(DELETED, len(keys)))
        if not (_plain_keys(keys) and self._add_run(keys, values)):
            for key, group in zip(keys, self._groups(keys), strict=True):
                self._write_row(key, DELETED, group)
        return True

    def _groups(self, keys: Sequence[Any]) -> Sequence[int]:
        """Their key groups, which are the task's.

        Raises:
            KeyError: one is not, so it is not the key any more that was checked when it came.
        """
        groups, own = self._target.groups(keys), self._target.place.own
        if groups and not (own.start <= min(groups) and max(groups) < own.stop):
            raise KeyError(next(key for key, group in zip(keys, groups, strict=True) if group not in own))
        return groups

    def _write_row(self, key: Any, value: Any, group: int) -> None:
        if self._failure is not None:
            return
        target = self._target
        try:
            data = value if value is DELETED or _plain(value) else encoded(self._encode(value))
            if type(value) not in target.read_back:
                self._read_back(value, data)
            stored = _stored_key(key)
            original = None if stored is key or comes_back(key) else pickle.dumps(key, _PICKLE_PROTOCOL)
            stamp = 0
            if target.stamp is not None:
                stamp = target.stamp(key) if data is value or immutable(value) else target.stamp(key, data.data)
            target.writer.add(target.position, group, (stored, original, data, stamp))
        except BaseException as e:  # the user's __reduce__ raises whatever it likes, also by sys.exit()
            self._fail(key, value, e)

    def _fail(self, key: Any, value: Any, error: BaseException) -> None:
        """A value cannot be saved. Also while user code reads or writes: the checkpoint fails then, not the tuple."""
        target = self._target
        self._failure = CheckpointError(
            f"component {target.place.component!r}, state {target.schema.name!r}: the value of key {shown(key)}, a "
            f"{type(value).__qualname__}, cannot be saved as {target.schema.codec}: {said(error)}"
        )

    def _fail_key(self, error: KeyError | TupleError) -> None:
        """A key is not found where it is, or is none any more: its owner has changed it."""
        target, key = self._target, error.args[0] if isinstance(error, KeyError) else None
        what = "a key" if isinstance(error, TupleError) else f"key {shown(key)}"
        self._failure = CheckpointError(
            f"component {target.place.component!r}, state {target.schema.name!r}: {what} has been changed since it was "
            "entered, so what is stored under it cannot be found: use keys that do not change"
        )

    def _read_back(self, value: Any, data: Any) -> None:
        """Try to read a value that was encoded: not to find out at a restore, when it is the only one."""
        target = self._target
        if data is not value and len(data.data) <= READ_BACK_BYTES_MAX:
            try:
                check_reads_back(CODECS[target.schema.codec], value, data.data)
            except BaseException as e:
                raise ValueError(f"it cannot be read back: {said(e)}") from e
            target.read_back.add(type(value))


def stored_value(value: Any, codec: str) -> Any:
    """A value as a checkpoint has it. Raises what its encoding raises."""
    return value if _plain(value) else encoded(CODECS[codec].encode(value))


def _stored_key(key: Any) -> Any:
    """A key as in a `Row`."""
    return key if (type(key) is str or type(key) is int) and _plain(key) else Raw(key_bytes(key))


def _plain_bytes(keys: Sequence[Any], values: Sequence[Any]) -> int | None:
    """How many bytes the values have together, about, if keys and values are stored as they are."""
    if not _plain_keys(keys):
        return None
    kinds = frozenset(map(type, values))
    if kinds <= _OF_NO_LENGTH:
        return 0
    return sum(map(len, values)) if kinds <= _OF_SOME_LENGTH else None


def _plain_keys(keys: Sequence[Any]) -> bool:
    kinds = frozenset(map(type, keys))
    return kinds in _PLAIN_KEYS and (int in kinds or sum(map(len, keys)) <= _RUN_BYTES_MAX)


def _plain(value: Any) -> bool:
    """Whether a value is stored as it is: None, bool, float, an int of 64 bits, short bytes or ASCII; no subclasses."""
    kind = type(value)
    if kind is int:
        return _INT_MIN <= value <= _INT_MAX  # type: ignore[no-any-return]
    if kind is str:
        return len(value) <= _PLAIN_BYTES_MAX and value.isascii()
    return value is None or kind is bool or kind is float or (kind is bytes and len(value) <= _PLAIN_BYTES_MAX)
