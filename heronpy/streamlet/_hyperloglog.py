"""How many different values there are, in a few kilobytes: HyperLogLog of Apache DataSketches."""

from __future__ import annotations

import functools
from typing import Any

from heronpy.errors import ConfigError, UsageError
from heronpy.streamlet.monoid import Monoid

_LG_K_MIN, _LG_K_MAX = 7, 21


class HyperLogLog(Monoid):
    """About how many different values there are: exact for a few, then with an error of 1.04 / sqrt(2 ** lg_k).

    Values are text, numbers, bytes and whatever else `heronpy.stores.encode_key` takes; equal values count once, in
    whatever process they are seen. Needs `datasketches`, which comes with the extra `spark`.
    """

    def __init__(self, lg_k: int = 12) -> None:
        """Describe it.

        Args:
            lg_k: 7 to 21; an accumulator has up to 2 ** lg_k bytes. 12: 4 KiB and an error of 1.6 %.

        Raises:
            ConfigError: another `lg_k`.
        """
        if not isinstance(lg_k, int) or not _LG_K_MIN <= lg_k <= _LG_K_MAX:
            raise ConfigError(f"lg_k must be a number from {_LG_K_MIN} to {_LG_K_MAX}, not {lg_k!r}")
        self.lg_k = lg_k

    def lift(self, value: Any) -> HllSketch:
        return self.add(HllSketch(self.lg_k), value)

    def add(self, acc: HllSketch, value: Any) -> HllSketch:
        if type(value) is str and value:
            try:
                acc.union.update(value)
                return acc
            except (TypeError, UnicodeError):
                pass  # lone surrogates
        acc.union.update(_hashable(value))
        return acc

    def merge(self, a: HllSketch, b: HllSketch) -> HllSketch:
        a.union.update(b.sketch())
        return a

    def result(self, acc: HllSketch) -> int:
        return round(acc.estimate())

    def encode(self, acc: HllSketch) -> bytes:
        return acc.to_bytes()

    def decode(self, data: bytes) -> HllSketch:
        return HllSketch.from_bytes(self.lg_k, data)

    def __repr__(self) -> str:
        return f"HyperLogLog(lg_k={self.lg_k})"


class HllSketch:
    """An accumulator of `HyperLogLog`. Equal if the estimates are."""

    __slots__ = ("lg_k", "union")

    def __init__(self, lg_k: int) -> None:
        self.lg_k = lg_k
        # A union rather than a sketch: it takes values as well as other sketches, both in place.
        self.union = _datasketches().hll_union(lg_k)

    @classmethod
    def from_bytes(cls, lg_k: int, data: bytes) -> HllSketch:
        """What `to_bytes` made."""
        made = cls(lg_k)
        made.union.update(_datasketches().hll_sketch.deserialize(data))
        return made

    def to_bytes(self) -> bytes:
        """DataSketches' own compact format."""
        return bytes(self.sketch().serialize_compact())

    def sketch(self) -> Any:
        """A sketch of the library, independent of this one."""
        return self.union.get_result(_datasketches().tgt_hll_type.HLL_8)

    def estimate(self) -> float:
        """About how many different values; depends on the values only, not on the order or how they were merged."""
        # A sketch that has only seen values in a row estimates from that row; merged with itself it knows the registers
        # only, as merged sketches do. Otherwise the batch view and the live view of the same values would differ.
        sketch = self.sketch()
        union = _datasketches().hll_union(self.lg_k)
        union.update(sketch)
        union.update(sketch)
        return float(union.get_estimate())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HllSketch) and self.estimate() == other.estimate()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __reduce__(self) -> tuple[Any, ...]:
        return HllSketch.from_bytes, (self.lg_k, self.to_bytes())

    def __repr__(self) -> str:
        return f"<about {self.estimate():g} different values>"


def _hashable(value: Any) -> int | str:
    """What the library hashes alike for equal values."""
    from heronpy.stores import decode_key, encode_key  # stores import monoids

    data = encode_key(value)
    plain = decode_key(data)
    if type(plain) is int and -(1 << 63) <= plain < 1 << 63:
        return plain
    if type(plain) is str and plain and not any("\ud800" <= char <= "\udfff" for char in plain):
        return plain
    return "\0" + data.decode("latin-1")


@functools.cache
def _datasketches() -> Any:
    try:
        import datasketches
    except ImportError as e:
        raise UsageError("HyperLogLog needs datasketches: pip install 'heron-engine[spark]'") from e
    return datasketches
