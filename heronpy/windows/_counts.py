"""Windows of so many elements, in the order of arrival. They fire at once when they are full.

The state of a key is a list: [elements since the last pane, [accumulators of slices]]. A slice has as many elements as
divide both length and slide. A key of tumbling windows leaves nothing behind when its window is full; one of sliding
windows keeps what its next window needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from heronpy.windows._effects import Effect, Timing
from heronpy.windows._engine import NOTHING, WindowEngine
from heronpy.windows._folds import Fold
from heronpy.windows._spans import END, NEVER, Counted, Span
from heronpy.windows._triggers import Windowing

_NO_TIMES = Span(NEVER, END)


class CountEngine(WindowEngine):
    """See the file."""

    def __init__(
        self, windowing: Windowing, fold: Fold, state: MutableMapping[Any, Any] | None = None, watermark: int = NEVER
    ) -> None:
        super().__init__(windowing, fold, state, watermark)
        assert isinstance(windowing.windows, Counted)
        length, self._slide = windowing.windows.length, windowing.windows.slide
        self._slice = math.gcd(length, self._slide)
        self._slices = length // self._slice
        self._kept = (length - self._slide) // self._slice

    def add(self, key: Any, value: Any, time_ms: int, now_ms: int = 0) -> Sequence[Effect]:
        found = self.state.get(key)
        if found is None:
            self.state[key] = found = [0, [self.fold.lift(value)]]
        elif found[0] % self._slice:
            found[1][-1] = self.fold.add(found[1][-1], value)
        else:
            found[1].append(self.fold.lift(value))
        found[0] += 1
        return NOTHING if found[0] < self._slide else [self._fire(key, found)]

    def _fire(self, key: Any, found: list[Any]) -> Effect:
        accs: list[Any] = found[1][-self._slices :]
        leaving = len(found[1]) - self._kept
        released = tuple(found[1][: max(0, leaving)])
        if self._kept:
            found[0] = 0
            del found[1][: max(0, leaving)]
        else:
            del self.state[key]
        return self._pane(key, _NO_TIMES, accs, Timing.ON_TIME, released)

    def flush(self) -> Iterator[Effect]:
        return iter(())

    def _due(self) -> Iterator[Effect]:
        return iter(())

    def check_invariants(self) -> None:
        for seen, accs in self.state.values():
            assert 0 <= seen < self._slide
            assert accs
            assert len(accs) <= self._kept + -(-seen // self._slice)


__all__ = ["CountEngine"]
