"""The objects of a checkpoint: what one task wrote, as bytes.

    magic "HERONST\\0" | format u16 | header length u32 | header CRC-32 u32 | header
    block | block | …
    header length u32 | header CRC-32 u32 | one record for each block        the index
    index offset u64 | index length u32 | index CRC-32 u32 | "HERONEND"      the trailer

All numbers are little-endian. The header is a msgpack map, see `Header`. A block has entries of one state; its record
in the index says where it is, whose, of how many entries, and its CRC-32. So a reader that knows the CRC-32 of the
index, from the manifest, has checked every byte it uses, whichever of the blocks it reads.

A record also says which key groups its block may have, a range of them. A task that takes over a part of another's
groups reads the blocks whose ranges overlap with its own, and of those that are only partly its own it picks its keys,
by their hash. A key that only unpickling brings back has no hash here, so it is in a block of one group. Entries are
written in the order of groups, a few megabytes at a time (`_object_writer`), so ranges are short. Small plain entries
of a task are in blocks of any group: to find its group would cost more than to write such an entry.

Format 1 is read, too: its records have a single group, or `MIXED` for all of them.

The trailer is written last: a torn object has none. Nothing is allocated by a length before the object's real size, or
the bytes that are there, bound it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final, Protocol
from zlib import crc32

import msgspec

from heronpy.checkpoints._header import Header, StateEntry
from heronpy.errors import CheckpointError
from heronpy.hashing import decode_key, key_groups

FORMAT: Final = 2
MAGIC: Final = b"HERONST\0"
END_MAGIC: Final = b"HERONEND"
VALUE_BYTES_MAX: Final = 1 << 30
HEADER_BYTES_MAX: Final = 4 * 1024 * 1024
INDEX_BYTES_MAX: Final = 256 * 1024 * 1024
READ_BYTES: Final = 8 * 1024 * 1024
"""Neighbouring blocks are read at once, up to about so many bytes."""
_TAIL_BYTES = 64 * 1024
MIXED: Final = 0xFFFFFFFF
"""In format 1, instead of a key group: entries of any."""

PREFIX = struct.Struct("<8sHII")
TRAILER = struct.Struct("<QII8s")
INDEX_PREFIX = struct.Struct("<II")
RECORD = struct.Struct("<QIIIIII")
RECORD_1 = struct.Struct("<QIIIII")


class Source(Protocol):
    """An object that can be read in parts."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes from there; fewer, if it is shorter than `size`."""


@dataclass(frozen=True, slots=True)
class BytesSource:
    """An object in memory."""

    name: str
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


Ext = msgspec.msgpack.Ext
DELETED: Final = Ext(0, b"")
"""Instead of a value: the key was deleted."""
_ENCODED: Final = 1
_VALUE_TYPES: Final = frozenset((type(None), bool, int, float, str, bytes, Ext))


def encoded(data: bytes) -> Ext:
    """A value as a codec has made it.

    Raises:
        CheckpointError: it is too large.
    """
    if len(data) > VALUE_BYTES_MAX:
        raise CheckpointError(f"it has {len(data)} bytes; {VALUE_BYTES_MAX} are allowed")
    return Ext(_ENCODED, data)


class Entries(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The entries of a block, in columns."""

    keys: bytes
    """All keys in one, in the form of `heronpy.hashing.encode_key` of their tuple: equal keys are equal here."""
    originals: dict[int, bytes]
    """By position, the pickled key where it is not what its encoding decodes to (True, a NamedTuple, an Enum)."""
    values: Sequence[Any]
    """Plain values (None, bool, int, float, str, bytes) as they are, others as `encoded` by their state's codec, and
    `DELETED`."""
    stamps: Sequence[int]
    """When each was written, in ms since 1970; none where the state needs no times."""


@dataclass(frozen=True, slots=True)
class Block:
    """Entries of one state, checked."""

    state: StateEntry
    groups: range
    """Those that its keys may have."""
    keys: tuple[object, ...]
    entries: Entries


Row = tuple[Any, "bytes | None", Any, int]
"""An entry to be written: the key, the pickled key, the value, and when it was written (in ms, or 0).

The key is text that is UTF-8, an int of 64 bits, or `msgspec.Raw` of what `encode_key` makes of it. The pickled key is
None unless the encoding decodes to another one. The value is as in `Entries`.
"""


@dataclass(frozen=True, slots=True)
class _Record:
    offset: int
    length: int
    state: int
    first_group: int
    end_group: int
    count: int
    crc: int

    @property
    def groups(self) -> range:
        return range(self.first_group, self.end_group)


class ObjectReader:
    """An object whose header and index have been checked; its blocks are when they are read.

    Every error is a CheckpointError that names the object. Errors of the source pass.
    """

    def __init__(self, source: Source) -> None:
        """Read and check header and index.

        Raises:
            CheckpointError: torn, truncated, damaged, another kind of file, or written by a later release.
        """
        self._source = source
        self.name = source.name
        self.size = source.size
        index_offset, index = self._read_index()
        self.checksum = crc32(index)
        self.header = self._read_header(index, index_offset)
        self._records = self._parse(index, index_offset)

    def bytes_by_group(self) -> dict[int, float]:
        """How many bytes the blocks of each key group have; of a block of several, each has the same share."""
        found = dict.fromkeys(range(self.header.first_group, self.header.end_group), 0.0)
        for record in self._records:
            share = record.length / len(record.groups)
            for group in record.groups:
                found[group] += share
        return found

    def blocks(
        self, wanted: Callable[[StateEntry], bool] = lambda state: True, groups: Iterable[int] | None = None
    ) -> Iterator[Block]:
        """Read and check the blocks of the wanted states, in the key groups or in all of them, as they were written.

        Raises:
            CheckpointError: a block is not what was written.
        """
        records, some = self._wanted(wanted, groups)
        for record, data in self._checked(records):
            block = self._block(record, data)
            yield block if some is None or some.issuperset(record.groups) else self._picked(block, some)

    def check(self, wanted: Callable[[StateEntry], bool], groups: Iterable[int]) -> None:
        """Read the same, and check it.

        Raises:
            CheckpointError: as `blocks`.
        """
        for _ in self._checked(self._wanted(wanted, groups)[0]):
            pass

    def _wanted(
        self, wanted: Callable[[StateEntry], bool], groups: Iterable[int] | None
    ) -> tuple[list[_Record], frozenset[int] | None]:
        """The records of blocks, and the key groups that are to be picked out of them; None: all."""
        states = [wanted(state) for state in self.header.states]
        header = self.header
        records = [record for record in self._records if states[record.state]]
        some = None if groups is None else frozenset(groups)
        if some is None or some.issuperset(range(header.first_group, header.end_group)):
            return records, None
        return [record for record in records if not some.isdisjoint(record.groups)], some

    def _picked(self, block: Block, groups: frozenset[int]) -> Block:
        """What a block has of some key groups."""
        picks = list(map(groups.__contains__, key_groups(block.keys, self.header.groups)))
        of = block.entries
        entries = Entries(of.keys, {}, list(compress(of.values, picks)), list(compress(of.stamps, picks)))
        return Block(block.state, block.groups, tuple(compress(block.keys, picks)), entries)

    def verify(self) -> None:
        """Read everything, and check it.

        Raises:
            CheckpointError: as `blocks`.
        """
        for _ in self._checked(self._records):
            pass

    def _checked(self, records: Sequence[_Record]) -> Iterator[tuple[_Record, bytes]]:
        for run in _runs(records):
            start = run[0].offset
            data = memoryview(self._read(start, run[-1].offset + run[-1].length - start, "its blocks"))
            for record in run:
                at = record.offset - start
                block = bytes(data[at : at + record.length])
                if crc32(block) != record.crc:
                    raise self._damaged(f"the checksum of its {self._where(record)} is wrong")
                yield record, block

    def _where(self, record: _Record) -> str:
        name = self.header.states[record.state].name
        groups = f"key groups {record.first_group} to {record.end_group - 1}"
        return f"block of state {name!r}, {groups}, at byte {record.offset}"

    def _block(self, record: _Record, data: bytes) -> Block:
        try:
            entries = _decode_entries(data)
            keys = decode_key(entries.keys)
        except (msgspec.MsgspecError, ValueError, RecursionError) as e:
            raise self._damaged(f"its {self._where(record)} is malformed: {e}") from e
        count = record.count
        if not (
            type(keys) is tuple
            and len(keys) == len(entries.values) == count
            and len(entries.stamps) in (0, count)
            and _VALUE_TYPES.issuperset(map(type, entries.values))
            and all(0 <= at < count for at in entries.originals)
            and not (len(record.groups) > 1 and entries.originals)
        ):
            raise self._damaged(
                f"the columns of its {self._where(record)} differ in length, or have what no writer writes"
            )
        return Block(self.header.states[record.state], record.groups, keys, entries)

    def _read_index(self) -> tuple[int, bytes]:
        least = PREFIX.size + INDEX_PREFIX.size + TRAILER.size
        if self.size < least:
            raise self._damaged(f"it has {self.size} bytes, and an object has {least} or more: it is torn or truncated")
        tail = self._read(max(0, self.size - _TAIL_BYTES), min(self.size, _TAIL_BYTES), "its end")
        offset, length, checksum, magic = TRAILER.unpack(tail[-TRAILER.size :])
        if magic != END_MAGIC:
            raise self._damaged("it does not end as an object does: it is torn or truncated, or another kind of file")
        if not (PREFIX.size <= offset and offset + length + TRAILER.size == self.size and length <= INDEX_BYTES_MAX):
            raise self._damaged(f"its index would be {length} bytes at {offset}, and it has {self.size}")
        if length + TRAILER.size <= len(tail):
            index = tail[-TRAILER.size - length : -TRAILER.size]
        else:
            index = self._read(offset, length, "its index")
        if length < INDEX_PREFIX.size:
            raise self._damaged(f"its index has {length} bytes")
        if crc32(index) != checksum:
            raise self._damaged("the checksum of its index is wrong")
        return offset, index

    def _read_header(self, index: bytes, index_offset: int) -> Header:
        length, checksum = INDEX_PREFIX.unpack_from(index)
        if length > HEADER_BYTES_MAX or PREFIX.size + length > index_offset:
            raise self._damaged(f"its header would have {length} bytes")
        data = self._read(0, PREFIX.size + length, "its header")
        magic, version, again, checksum_again = PREFIX.unpack_from(data)
        if magic != MAGIC:
            raise self._damaged("it does not begin as an object does: another kind of file")
        if not 1 <= version <= FORMAT:
            raise self._damaged(f"its format is {version}, and this release reads 1 to {FORMAT}")
        self._format = version
        body = data[PREFIX.size :]
        if (length, checksum) != (again, checksum_again) or crc32(body) != checksum:
            raise self._damaged("the checksum of its header is wrong")
        try:
            return _decode_header(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as e:
            raise self._damaged(f"its header is malformed: {e}") from e

    def _parse(self, index: bytes, index_offset: int) -> list[_Record]:
        header = self.header
        size = RECORD.size if self._format == FORMAT else RECORD_1.size
        if (len(index) - INDEX_PREFIX.size) % size:
            raise self._damaged(f"its index has {len(index)} bytes")
        records = [*self._records_of(index[INDEX_PREFIX.size :])]
        offset = PREFIX.size + INDEX_PREFIX.unpack_from(index)[0]
        for record in records:
            if record.offset != offset or record.length == 0:
                raise self._damaged(f"its index has a block at {record.offset}, and the last one ends at {offset}")
            own = header.first_group <= record.first_group < record.end_group <= header.end_group
            if record.state >= len(header.states) or not own:
                raise self._damaged(
                    f"its index has a block of state {record.state} in key groups {record.first_group} to "
                    f"{record.end_group}"
                )
            if record.count > record.length:  # an entry has a byte or more
                raise self._damaged(f"its index has a block of {record.count} entries in {record.length} bytes")
            offset += record.length
        if offset != index_offset:
            raise self._damaged(f"its blocks end at {offset}, and its index begins at {index_offset}")
        return records

    def _records_of(self, data: bytes) -> Iterator[_Record]:
        if self._format == FORMAT:
            yield from (_Record(*fields) for fields in RECORD.iter_unpack(data))
            return
        for offset, length, state, group, count, crc in RECORD_1.iter_unpack(data):
            first, end = group, group + 1
            if group == MIXED:
                first, end = self.header.first_group, self.header.end_group
            yield _Record(offset, length, state, first, end, count, crc)

    def _read(self, offset: int, length: int, what: str) -> bytes:
        data = self._source.read(offset, length)
        if len(data) != length:
            raise self._damaged(f"{what} is {len(data)} bytes long, not {length}: it is truncated")
        return data

    def _damaged(self, why: str) -> CheckpointError:
        return CheckpointError(f"checkpoint object {self.name}: {why}")


def _runs(records: Sequence[_Record]) -> Iterator[list[_Record]]:
    """Neighbours that are read at once."""
    run: list[_Record] = []
    size = 0
    for record in records:
        if run and (run[-1].offset + run[-1].length != record.offset or size + record.length > READ_BYTES):
            yield run
            run, size = [], 0
        run.append(record)
        size += record.length
    if run:
        yield run


_decode_entries = msgspec.msgpack.Decoder(Entries).decode
_decode_header = msgspec.msgpack.Decoder(Header).decode
