"""How values of one key are put together: associative and commutative, so that the order and the place do not matter.

Batch views, live views and partial results of many tasks are merged with the same monoid; that is what makes the merged
read `batch up to N ⊕ live after N` right (Boykin et al., Summingbird, PVLDB 7(13), 2014).
"""

from __future__ import annotations

import decimal
import numbers
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from heronpy.errors import ConfigError
from heronpy.streamlet.values import decode_value, encode_value

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_UNBOUNDED = frozenset({int, float, decimal.Decimal})
"""What most sums are of: to ask for the type of others takes longer."""


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
        """An accumulator as bytes: of plain values, lists, tuples, sets and dicts, unless overridden with `decode`.

        Raises:
            TypeError: it is of another type.
        """
        return encode_value(acc)

    def decode(self, data: bytes) -> Any:
        """What `encode` was given."""
        return decode_value(data)

    @property
    def signature(self) -> str:
        """Names the monoid and its parameters: batch views and live views of another one are not merged with its own.

        It is made of `repr`, so a monoid of yours with parameters should show them there.
        """
        return _ADDRESS.sub("", repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Sum(Monoid):
    """The sum of numbers, or of anything else that can be added to 0.

    Of ints, also numpy's, it is exact, of Decimals up to their context's precision (28 digits). Of floats the last
    digits depend on the order in which they were added, so that a batch view and a live view of the same values may
    differ there: count in cents, or in Decimals. Numpy's float32 and float16 are added with their own precision.
    """

    def lift(self, value: Any) -> Any:
        # What is no number is refused here: as a key's first value it would keep others out.
        return _unbounded(0 + value)

    def merge(self, a: Any, b: Any) -> Any:
        if type(a) in _UNBOUNDED and type(b) in _UNBOUNDED:
            return a + b
        return _unbounded(a) + _unbounded(b)

    def add(self, acc: Any, value: Any) -> Any:
        return acc + (value if type(value) in _UNBOUNDED else _unbounded(value))


def _unbounded(value: Any) -> Any:
    """An integer as an int: the sum of two of numpy's has their width, and wraps."""
    return operator.index(value) if isinstance(value, numbers.Integral) else value


class Count(Monoid):
    """How many values there are, whatever they are."""

    def lift(self, value: Any) -> int:
        return 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def add(self, acc: int, value: Any) -> int:
        return acc + 1


class Min(Monoid):
    """The smallest value. nan counts only where there is nothing else."""

    def lift(self, value: Any) -> Any:
        operator.lt(value, value)  # as with `Sum`
        return value

    def merge(self, a: Any, b: Any) -> Any:
        return b if b < a or a != a else a  # nan is not itself


class Max(Monoid):
    """The largest value. nan counts only where there is nothing else."""

    def lift(self, value: Any) -> Any:
        operator.gt(value, value)  # as with `Sum`
        return value

    def merge(self, a: Any, b: Any) -> Any:
        return b if b > a or a != a else a  # nan is not itself


class Mean(Monoid):
    """The mean of numbers. The accumulator is (sum, count); the sum is as exact as `Sum`."""

    def lift(self, value: Any) -> tuple[Any, int]:
        self.result((value, 1))  # as with `Sum`
        return _unbounded(value), 1

    def merge(self, a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
        return a[0] + b[0], a[1] + b[1]

    def add(self, acc: tuple[Any, int], value: Any) -> tuple[Any, int]:
        return acc[0] + (value if type(value) in _UNBOUNDED else _unbounded(value)), acc[1] + 1

    def result(self, acc: tuple[Any, int]) -> Any:
        return acc[0] / acc[1]

    def encode(self, acc: tuple[Any, int]) -> bytes:
        return encode_value(list(acc))

    def decode(self, data: bytes) -> tuple[Any, int]:
        total, count = decode_value(data)
        return total, count


class SetUnion(Monoid):
    """The set of all values, which must be hashable. It grows with them: for many, use `HyperLogLog`."""

    def lift(self, value: Any) -> set[Any]:
        return {value}

    def merge(self, a: set[Any], b: set[Any]) -> set[Any]:
        a |= b
        return a

    def add(self, acc: set[Any], value: Any) -> set[Any]:
        acc.add(value)
        return acc

    def result(self, acc: set[Any]) -> frozenset[Any]:
        return frozenset(acc)


class TopK(Monoid):
    """The k largest values, the largest first.

    Equal values each take a place, as they are different events: what at-least-once delivery repeats is there twice
    until the batch job has recomputed it. nan has no place in an order; leave it out.
    """

    def __init__(self, k: int, key: Callable[[Any], Any] | None = None) -> None:
        """Describe it.

        Args:
            k: how many, at least 1.
            key: what values are compared by; themselves without it. Of different values with one key, those whose
                encoding is greater come first, so that the order of arrival does not matter.

        Raises:
            ConfigError: `k` is not a positive number.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ConfigError(f"TopK takes a positive number, not {k!r}")
        self.k = k
        self.key = key

    def lift(self, value: Any) -> list[Any]:
        self._smaller(value, value)  # as with `Sum`
        return [value]

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return sorted(a + b, key=self._order, reverse=True)[: self.k]

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        if len(acc) == self.k and self._smaller(value, acc[-1]):
            return acc
        return self.merge(acc, [value])  # a new list: if the value cannot be compared, the old one is as it was

    def result(self, acc: list[Any]) -> list[Any]:
        return list(acc)

    @property
    def _order(self) -> Callable[[Any], Any] | None:
        return None if self.key is None else self._key_and_bytes

    def _key_and_bytes(self, value: Any) -> tuple[Any, bytes]:
        assert self.key is not None
        return self.key(value), encode_value(value)

    def _smaller(self, value: Any, other: Any) -> bool:
        return bool(value < other if self.key is None else self.key(value) < self.key(other))

    def __repr__(self) -> str:
        return f"TopK({self.k})" if self.key is None else f"TopK({self.k}, key={self.key!r})"


class MonoidOf(Monoid):
    """A dict of results, from values that are dicts: each field by a monoid of its own.

    MonoidOf(price=Mean(), seller=SetUnion())

    Other fields are left out. A value without a field adds nothing to it.
    """

    def __init__(self, **fields: Monoid) -> None:
        """Describe it.

        Raises:
            ConfigError: no fields, or one that is not given a monoid.
        """
        if not fields:
            raise ConfigError("MonoidOf takes a monoid for each field: MonoidOf(price=Mean())")
        for name, monoid in fields.items():
            if not isinstance(monoid, Monoid):
                raise ConfigError(f"MonoidOf takes a monoid for each field, not {name}={monoid!r}")
        self.fields = fields

    def lift(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: monoid.lift(value[name]) for name, monoid in self.fields.items() if name in value}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        for name, acc in b.items():
            monoid = self.fields[name]
            # A copy, not b's own: the next merge into `a` may change it.
            a[name] = monoid.merge(a[name], acc) if name in a else monoid.decode(monoid.encode(acc))
        return a

    def add(self, acc: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
        for name, monoid in self.fields.items():
            if name in value:
                acc[name] = monoid.add(acc[name], value[name]) if name in acc else monoid.lift(value[name])
        return acc

    def result(self, acc: dict[str, Any]) -> dict[str, Any]:
        return {name: monoid.result(acc[name]) for name, monoid in self.fields.items() if name in acc}

    def encode(self, acc: dict[str, Any]) -> bytes:
        return encode_value([[name, self.fields[name].encode(part)] for name, part in acc.items()])

    def decode(self, data: bytes) -> dict[str, Any]:
        return {name: self.fields[name].decode(part) for name, part in decode_value(data) if name in self.fields}

    def __repr__(self) -> str:
        return f"MonoidOf({', '.join(f'{name}={monoid!r}' for name, monoid in self.fields.items())})"
