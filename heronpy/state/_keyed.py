"""State by key."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterator, Sequence, ValuesView
from typing import Any

from heronpy.checkpoints import ObjectWriter
from heronpy.errors import ConfigError
from heronpy.hashing import key_group, key_groups
from heronpy.state._dict_like import UNSET
from heronpy.state._immutable import ATOMS, immutable
from heronpy.state._key_bytes import check_lasting
from heronpy.state._owed import ENTRIES_AT_ONCE
from heronpy.state._place import Place
from heronpy.state._schema import CODECS, Schema
from heronpy.state._tracked import Tracked

_log = logging.getLogger(__name__)
_EXPIRED_AT_ONCE = 2
_UNSEEN_PART = 10
_Seen = tuple[int, int | None]
"""When a mutable value was written, and its digest since then, if that is known."""
_PRESENT = ATOMS - {type(None)}  # what `dict.get` returns for keys that are there


class KeyedState(Tracked):
    """The keys of this task, with their values. Behaves as a dict.

    A key of another task is refused, whether it is read or written. A value that was read may be changed until the call
    of user code ends in which it was read; what changes it later must read it again. Of equal keys of different types
    (1 and True) a restore brings back one, not always the first that was used.
    """

    __slots__ = ()

    def _check(self, key: Any) -> None:
        if key is not self._checked:
            self.place.check_key(self.schema.name, key)
            if self.place.lasting:
                check_lasting(key)
            self._checked = key

    def take_checked(self) -> Any:
        """A key that was new, or not there, since the last call; UNSET: there was none."""
        key, self._checked = self._checked, UNSET
        return key

    def _groups(self, keys: Sequence[Any]) -> Sequence[int]:
        if len(keys) == 1:
            return (key_group(keys[0], self.place.groups),)
        return key_groups(keys, self.place.groups)

    def _set_in_place(self, in_place: bool) -> bool:
        self.__class__ = _InPlace if in_place else KeyedState
        return True


class _InPlace(KeyedState):
    """The same while a layer is written in place: writes go there, and what they replace is saved."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if key not in self._front and key not in self._deleted:
            value = self._layer[0].get(key)  # type: ignore[index]
            if type(value) in _PRESENT:
                return value
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        front, owed = self._front, self._owed
        assert self._layer is not None
        assert owed is not None
        layer = self._layer[0]
        if key in front:
            front[key] = value
        elif key in layer and key not in self._deleted:
            if not owed.done and key not in owed.saved:
                owed.saved[key] = layer[key]
            layer[key] = value
        else:
            self._enter(key)
            # Its keys must not change until all of them are written.
            (layer if owed.done else front)[key] = value


_InPlace.__name__ = KeyedState.__name__


class BoundedKeyedState(KeyedState):
    """State by key that forgets: what was not written for a time, and what was not used for the longest time.

    With `ttl_s` a key is gone when its last write is so long ago. A reader may change a mutable value in place, without
    the state knowing: so its digest is kept from when it was last known to be written, and compared at the next
    checkpoint, which has its bytes anyway, and before it is forgotten. If it differs, the value was written when it was
    last read. Where there is no digest yet, one is taken when the value is read later than a tenth of the time after it
    was written; until then reading counts as writing. So a key is never forgotten early, and at most a tenth of its
    time too late.

    With `max_keys` a new key takes the place of the one that was neither read nor written for the longest time. What is
    forgotten is deleted from checkpoints, too. Times of writes are in the checkpoint, the order of reads is not: after
    a restore, keys were last used when they were last written. Expired keys are removed two at a time by writes, and
    all of them by `expire`.
    """

    __slots__ = (
        "_ahead_ms",
        "_at_marker",
        "_clock_ms",
        "_max_keys",
        "_now_ms",
        "_seen",
        "_seen_since_ms",
        "_stored_ms",
        "_touched",
        "_ttl_ms",
        "_used",
    )

    def __init__(
        self,
        schema: Schema,
        place: Place,
        default: Any = UNSET,
        *,
        clock_ms: Callable[[], int],
        ttl_s: float | None = None,
        max_keys: int | None = None,
    ) -> None:
        """As `Tracked`.

        Args:
            schema: As there.
            place: As there.
            default: As there.
            clock_ms: Milliseconds since 1970, only going forward; behind what was saved, it goes on from there.
            ttl_s: How long a key lives after it was written.
            max_keys: How many keys this task keeps.

        Raises:
            ConfigError: neither positive.
        """
        super().__init__(schema, place, default)
        if ttl_s is not None and ttl_s <= 0:
            raise ConfigError(f"state {schema.name!r}: ttl_s must be more than 0, not {ttl_s!r}")
        if max_keys is not None and max_keys < 1:
            raise ConfigError(f"state {schema.name!r}: max_keys must be 1 or more, not {max_keys!r}")
        self._clock_ms = clock_ms
        self._now_ms = self._ahead_ms = 0
        self._ttl_ms = None if ttl_s is None else max(1, int(ttl_s * 1000))
        self._max_keys = max_keys
        # A plain dict takes longer to find its first key the more have been deleted before it.
        self._touched: OrderedDict[Any, int] = OrderedDict()
        """When each was written or, if it is mutable, read, in that order."""
        self._seen: dict[Any, _Seen] = {}
        """Of mutable values that were read or saved since they were written; only with a time to live."""
        self._seen_since_ms = 0
        """None of these was written before."""
        self._stored_ms = 0
        """The time of what was written until then, and has no digest, may have been raised by a read already: before a
        restore, say. It must not be once more."""
        self._used: OrderedDict[Any, None] = OrderedDict()  # in the order of uses; only with max_keys
        self._at_marker: dict[Any, tuple[int, _Seen | None]] = {}
        """The same of what was touched or deleted since the marker, while its checkpoint is being written."""

    def __getitem__(self, key: Any) -> Any:
        self._forget_if_expired(key)
        if key not in self._touched:
            return self._missing(key)
        value = super().__getitem__(key)
        if not immutable(value):
            self._handed_out(key, value)
        if self._max_keys is not None:
            self._use(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            return default
        return self[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._wrote(key)
        if self._max_keys is not None:
            self._use(key)
            self._evict()
        if self._ttl_ms is not None:
            self.expire(_EXPIRED_AT_ONCE)

    def __delitem__(self, key: Any) -> None:
        self._forget_if_expired(key)
        self._forget(key)

    def __contains__(self, key: Any) -> bool:
        self._forget_if_expired(key)
        return super().__contains__(key)

    def __iter__(self) -> Iterator[Any]:
        # A list: what happens in the loop may remove other keys, which a dict does not allow while it is iterated.
        self.expire()
        return iter(list(self._touched))

    def __len__(self) -> int:
        self.expire()
        return super().__len__()

    def items(self) -> ItemsView[Any, Any]:
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def expire(self, at_most: int | None = None) -> int:
        """Remove keys that have expired; how many it were."""
        if self._ttl_ms is None:
            return 0
        expired: list[Any] = []
        before = self._now() - self._ttl_ms
        for key, written_ms in self._touched.items():
            if written_ms > before or len(expired) == at_most:
                break
            expired.append(key)
        for key in expired:
            self._forget(key)
        if at_most is None and self._seen and self._seen_since_ms <= before:
            for key in [key for key, seen in self._seen.items() if seen[0] <= before]:
                if not self._was_changed(key):
                    self._forget(key)
                    expired.append(key)
            self._seen_since_ms = min((written_ms for written_ms, _ in self._seen.values()), default=0)
        return len(expired)

    def load(self, data: dict[Any, Any], stamps: dict[Any, int]) -> None:
        super().load(data, stamps)
        self._touched = OrderedDict(sorted(((key, stamps.get(key, 0)) for key in data), key=lambda item: item[1]))
        # Before there were bounds no time was noted down; such keys were written now.
        now_ms = self._go_on_from(max(self._touched.values(), default=0))
        for key in [key for key, written_ms in self._touched.items() if written_ms == 0]:
            del self._touched[key]
            self._touched[key] = now_ms
        self._stored_ms = now_ms
        if self._max_keys is not None:
            self._used = OrderedDict.fromkeys(self._touched)
            self._evict()

    def check_invariants(self) -> None:
        super().check_invariants()
        assert self._touched.keys() == self.copy().keys()
        assert self._max_keys is None or self._used.keys() == self._touched.keys()
        assert self._max_keys is None or len(self._touched) <= self._max_keys
        assert list(self._touched.values()) == sorted(self._touched.values())
        assert self._seen.keys() <= self._touched.keys()
        assert all(self._seen_since_ms <= ms <= self._touched[key] for key, (ms, _) in self._seen.items())

    def _set_in_place(self, in_place: bool) -> bool:
        return False

    def begin(self, writer: ObjectWriter, position: int, *, base: bool, at_once: int = ENTRIES_AT_ONCE) -> None:
        self._at_marker = {}
        super().begin(writer, position, base=base, at_once=at_once)

    def _stamp(self, key: Any, mutable: bytes | None = None) -> int:
        before = self._at_marker.get(key)
        touched_ms, seen = before or (self._touched.get(key, 0), self._seen.get(key))
        if mutable is None or self._ttl_ms is None:
            return touched_ms
        digest = hash(mutable)
        written_ms = seen[0] if seen is not None and seen[1] == digest else touched_ms
        if before is None:
            self._note(key, written_ms, digest)
        return written_ms

    def _now(self) -> int:
        self._now_ms = max(self._now_ms, self._clock_ms() + self._ahead_ms)
        return self._now_ms

    def _go_on_from(self, newest_ms: int) -> int:
        """The time now, after a restore: the newest of its keys was written then, maybe by a clock that was ahead."""
        wall_ms = self._clock_ms()
        self._ahead_ms = max(self._ahead_ms, newest_ms - wall_ms)
        if newest_ms and self._ttl_ms is not None and wall_ms - newest_ms >= self._ttl_ms:
            _log.warning(
                "component %r, state %r: by this host's clock the newest of its keys was written %d s ago, and they "
                "live %d s: all of them expire",
                self.place.component,
                self.schema.name,
                (wall_ms - newest_ms) // 1000,
                self._ttl_ms // 1000,
            )
        return self._now()

    def _wrote(self, key: Any) -> None:
        self._drop_times(key)
        self._touched[key] = self._now()

    def _handed_out(self, key: Any, value: Any) -> None:
        """A mutable value is about to be given to somebody who may change it."""
        touched_ms = self._touched.get(key)
        if touched_ms is None:
            touched_ms = self._cold_ms(key)
        seen = self._seen.get(key)
        if self._owed is not None:
            self._at_marker.setdefault(key, (touched_ms, seen))
        self._touched[key] = now_ms = self._now()
        self._touched.move_to_end(key)
        if self._ttl_ms is None or (seen is not None and seen[1] is not None):
            return
        written_ms = touched_ms if seen is None else seen[0]
        if written_ms <= self._stored_ms or now_ms - written_ms > self._ttl_ms // _UNSEEN_PART:
            self._note(key, touched_ms, self._digest(value))
        elif seen is None:
            self._note(key, written_ms, None)

    def _cold_ms(self, key: Any) -> int:
        """When a key was written that was not in memory until now."""
        raise NotImplementedError

    def _note(self, key: Any, written_ms: int, digest: int | None) -> None:
        self._seen_since_ms = min(self._seen_since_ms, written_ms) if self._seen else written_ms
        self._seen[key] = written_ms, digest

    def _digest(self, value: Any) -> int | None:
        """None: it cannot be saved, which a checkpoint will say."""
        try:
            return hash(CODECS[self.schema.codec].encode(value))
        except BaseException:  # the user's __reduce__ raises whatever it likes
            return None

    def _was_changed(self, key: Any) -> bool:
        """Whether a mutable value whose time is over was written since, in place, and its time is not over then."""
        touched_ms, seen = self._touched[key], self._seen[key][1]
        digest = self._digest(self._look_at(key))
        if digest is not None and digest == seen:
            return False
        self._note(key, touched_ms, digest)
        assert self._ttl_ms is not None
        return touched_ms > self._now() - self._ttl_ms

    def _drop_times(self, key: Any) -> None:
        touched_ms = self._touched.pop(key, 0)
        seen = self._seen.pop(key, None) if self._seen else None
        if self._owed is not None:
            self._at_marker.setdefault(key, (touched_ms, seen))

    def _use(self, key: Any) -> None:
        self._used.pop(key, None)
        self._used[key] = None

    def _evict(self) -> None:
        assert self._max_keys is not None
        while len(self._touched) > self._max_keys:
            self._forget(next(iter(self._used)))

    def _forget(self, key: Any) -> None:
        super().__delitem__(key)
        self._drop_times(key)
        self._used.pop(key, None)

    def _forget_if_expired(self, key: Any) -> None:
        if self._ttl_ms is None:
            return
        touched_ms = self._touched.get(key)
        if touched_ms is None:
            return
        before = self._now() - self._ttl_ms
        if touched_ms > before:
            seen = self._seen.get(key) if self._seen else None
            if seen is None or seen[0] > before or self._was_changed(key):
                return
        self._forget(key)


class _Items(ItemsView[Any, Any]):
    """Of the keys that are still there when their turn comes."""

    def __init__(self, state: BoundedKeyedState) -> None:
        super().__init__(state)
        self._state = state

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for key in self._state:
            value = self._state.get(key, UNSET)
            if value is not UNSET:
                yield key, value


class _Values(ValuesView[Any]):
    def __init__(self, state: BoundedKeyedState) -> None:
        super().__init__(state)
        self._state = state

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in _Items(self._state))
