"""Bringing together the rows of one key, however many keys there are.

As long as they are few they wait in memory. Beyond that all are divided by a hash of the key among files, and each file
is grouped by itself (a Grace hash join): memory is bounded by the largest file, and nothing is sorted.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

MEMORY_ROWS = 200_000
PARTS = 128
_HEADER = struct.Struct("<BqII")


class Row(NamedTuple):
    """What one side says about a key in a batch."""

    side: int
    """0 or 1."""
    batch: int
    key: bytes
    acc: Any


Pair = list[Any]
"""[accumulator of side 0, that of side 1], each None where there is none."""


@dataclass(frozen=True)
class Coding:
    """How accumulators become bytes, and back."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def grouped(
    rows: Iterable[Row], coding: Coding, *, memory_rows: int = MEMORY_ROWS, parts: int = PARTS
) -> Iterator[tuple[bytes, dict[int, Pair]]]:
    """Every key, once, with what both sides say about it by batch.

    Needs disk space for all rows if there are more than `memory_rows`, until the iterator ends or is closed.
    """
    source = iter(rows)
    first = list(itertools.islice(source, memory_rows + 1))
    if len(first) <= memory_rows:
        yield from _groups(first).items()
        return
    with tempfile.TemporaryDirectory(prefix="heron-reconcile-") as scratch:
        files = [Path(scratch) / str(part) for part in range(parts)]
        _divide(itertools.chain(first, source), files, coding.encode, first)
        for file in files:
            yield from _groups(_read(file, coding.decode)).items()
            file.unlink()


def _groups(rows: Iterable[Row]) -> dict[bytes, dict[int, Pair]]:
    groups: dict[bytes, dict[int, Pair]] = {}
    for side, batch, key, acc in rows:
        batches = groups.get(key)
        if batches is None:
            batches = groups[key] = {}
        pair = batches.get(batch)
        if pair is None:
            pair = batches[batch] = [None, None]
        pair[side] = acc
    return groups


def _divide(rows: Iterable[Row], files: list[Path], encode: Callable[[Any], bytes], first: list[Row]) -> None:
    with contextlib.ExitStack() as stack:
        out: list[BinaryIO] = [stack.enter_context(file.open("wb", buffering=1 << 16)) for file in files]
        for side, batch, key, acc in rows:
            data = encode(acc)
            file = out[zlib.crc32(key) % len(out)]
            file.write(_HEADER.pack(side, batch, len(key), len(data)))
            file.write(key)
            file.write(data)
    first.clear()


def _read(file: Path, decode: Callable[[bytes], Any]) -> Iterator[Row]:
    data = file.read_bytes()
    at = 0
    while at < len(data):
        side, batch, key_bytes, acc_bytes = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        end = at + key_bytes + acc_bytes
        yield Row(side, batch, data[at : at + key_bytes], decode(data[at + key_bytes : end]))
        at = end
