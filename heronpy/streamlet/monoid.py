"""How values of one key are put together: associative and commutative, so that the order and the place do not matter.

Batch views, live views and partial results of many tasks are merged with the same monoid; that is what makes the merged
read `batch up to N ⊕ live after N` right (Boykin et al., Summingbird, PVLDB 7(13), 2014).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec


class Monoid(ABC):
    """Turns values into accumulators, merges those, and reads results from them.

    `merge(merge(a, b), c)` must equal `merge(a, merge(b, c))`, and `merge(a, b)` must equal `merge(b, a)`:
    `heronpy.testing.check_monoid` tests yours.
    """

    @abstractmethod
    def lift(self, value: Any) -> Any:
        """The accumulator of one value."""

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """The accumulator of everything in `a` and `b`. May change and return `a`; must leave `b` as it is."""

    def add(self, acc: Any, value: Any) -> Any:
        """`merge(acc, lift(value))`, where that can be had cheaper. May change and return `acc`."""
        return self.merge(acc, self.lift(value))

    def result(self, acc: Any) -> Any:
        """What users see of an accumulator. The accumulator itself, unless overridden."""
        return acc

    def encode(self, acc: Any) -> bytes:
        """An accumulator as bytes. msgpack, unless overridden together with `decode`.

        Raises:
            TypeError: msgpack has no such type.
        """
        return msgspec.msgpack.encode(acc)

    def decode(self, data: bytes) -> Any:
        """What `encode` was given."""
        return msgspec.msgpack.decode(data)


class Sum(Monoid):
    """The sum of numbers."""

    def lift(self, value: Any) -> Any:
        return value

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def add(self, acc: Any, value: Any) -> Any:
        return acc + value
