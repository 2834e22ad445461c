"""State by key of which a part is in a file: how it is restored, and how it forgets what has expired there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, Final

from heronpy.checkpoints import Block
from heronpy.errors import UnavailableError
from heronpy.state._dict_like import UNSET
from heronpy.state._immutable import immutable
from heronpy.state._keyed import BoundedKeyedState, KeyedState
from heronpy.state._place import Place
from heronpy.state._restored import decode_block
from heronpy.state._schema import Schema
from heronpy.state._spill import Memory, Spill
from heronpy.state._tracked import Tracked

_NEVER: Final = float("inf")
_AT_ONCE = 1024


class _Restored(dict[Any, Any]):
    """The entries of one block. Keys that are taken away are noted down: what is older may have them."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[Any] = []

    def pop(self, key: Any, default: Any = None) -> Any:
        self.gone.append(key)
        return super().pop(key, default)


class SpilledKeyedState(KeyedState):
    """As a `KeyedState`; what is committed and does not fit into memory is in a file."""

    __slots__ = ()

    def __init__(self, schema: Schema, place: Place, default: Any, memory: Memory) -> None:
        super().__init__(schema, place, default)
        self._spill = Spill(memory, schema, by_time=False)
        self._relink()

    def load_blocks(self, blocks: Iterable[Block]) -> None:
        """Take over what was restored, read piece by piece; nothing of it is dirty. Raises as `decoded`."""
        _load(self, blocks, lambda _gone, _stamps: None)


class SpilledExpiringState(BoundedKeyedState):
    """The same for state with a time to live. What is in the file has its times there."""

    __slots__ = ()

    def __init__(
        self,
        schema: Schema,
        place: Place,
        default: Any = UNSET,
        *,
        memory: Memory,
        clock_ms: Callable[[], int],
        ttl_s: float,
    ) -> None:
        super().__init__(schema, place, default, clock_ms=clock_ms, ttl_s=ttl_s)
        self._spill = Spill(memory, schema, by_time=True)
        self._relink()

    def __getitem__(self, key: Any) -> Any:
        self._forget_if_expired(key)
        value = Tracked.__getitem__(self, key)
        if not immutable(value):
            self._handed_out(key, value)
        return value

    def __iter__(self) -> Iterator[Any]:
        self.expire()
        assert self._spill is not None
        yield from list(self._touched)
        yield from (key for key in self._spill.cold if key not in self._touched and self._is_below(key))

    def expire(self, at_most: int | None = None) -> int:
        expired = super().expire(at_most)
        assert self._ttl_ms is not None
        assert self._spill is not None
        cold, until_ms = self._spill.cold, self._now() - self._ttl_ms
        while cold.oldest_ms is not None and cold.oldest_ms <= until_ms and expired != at_most:
            try:
                keys = cold.pop_oldest(until_ms, _AT_ONCE if at_most is None else at_most - expired)
            except UnavailableError as error:
                self._spill.failed(error)
                break  # meanwhile they are forgotten when they are looked for
            for key in keys:
                expired += 1
                if key not in self._touched and self._is_below(key):
                    self._forget(key)
        return expired

    def load_blocks(self, blocks: Iterable[Block]) -> None:
        """As of `SpilledKeyedState`."""

        newest_ms = 0

        def stamped(gone: list[Any], stamps: dict[Any, int]) -> None:
            nonlocal newest_ms
            newest_ms = max(newest_ms, max(stamps.values(), default=0))
            self._now_ms = max(self._now_ms, newest_ms)
            for key in (*gone, *stamps):
                self._touched.pop(key, None)
            for key, written_ms in stamps.items():
                self._touched[key] = written_ms or self._now()
            self._stored_ms = self._now_ms

        _load(self, blocks, stamped)
        self._go_on_from(newest_ms)
        self._touched = OrderedDict(sorted(self._touched.items(), key=lambda item: item[1]))

    def check_invariants(self) -> None:
        Tracked.check_invariants(self)
        assert self._touched.keys() <= self.copy().keys()
        assert list(self._touched.values()) == sorted(self._touched.values())

    def _forget_if_expired(self, key: Any) -> None:
        if key in self._touched:
            super()._forget_if_expired(key)
            return
        assert self._spill is not None
        assert self._ttl_ms is not None
        written_ms = self._spill.cold.written_ms(key)
        if written_ms is not None and written_ms <= self._now() - self._ttl_ms and self._is_below(key):
            self._forget(key)

    def _cold_ms(self, key: Any) -> int:
        assert self._spill is not None
        return self._spill.cold.written_ms(key) or 0

    def _base_ms(self, key: Any) -> int:
        # The time is that of the newest value. Of an older one, it is not needed any more.
        if key in self._front or any(layer and key in layer[0] for layer in (self._layer, self._sinking)):
            return 0
        seen = self._seen.get(key)
        return self._touched.get(key, 0) if seen is None else seen[0]

    def _evicted(self, key: Any) -> None:
        self._stored_ms = max(self._stored_ms, self._touched.pop(key))
        self._seen.pop(key, None)


SpilledKeyedState.__name__ = KeyedState.__name__
SpilledExpiringState.__name__ = BoundedKeyedState.__name__


def _load(
    state: SpilledKeyedState | SpilledExpiringState,
    blocks: Iterable[Block],
    stamped: Callable[[list[Any], dict[Any, int]], None],
) -> None:
    spill, base = state._spill, state._base
    assert spill is not None
    for block in blocks:
        restored, stamps = _Restored(), dict[Any, int]()
        decode_block(state.schema, state.place, block, restored, stamps)
        spill.remove(restored.gone)
        for key in restored.gone:
            base.pop(key, None)
        base.update(restored)
        stamped(restored.gone, {key: stamps.get(key, 0) for key in restored})
        spill.look_at(list(restored.items()))
        # Half of the room: what is read has some memory, too.
        spill.evicted(base, len(base), state._base_ms, state._evicted, _NEVER, perf_counter)
    state.loaded(len(base) + len(spill.cold) - sum(map(spill.cold.__contains__, base)))
