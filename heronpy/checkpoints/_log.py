"""The alignment log of a task: batches that its snapshot does not cover, though they were sent before the markers.

An object of its own beside the task's state, of one checkpoint only; a restore has it executed first.

    magic "HERONLG\\0" | format u16 | header length u32 | header
    source u32 | skip u32 | length u32 | batch                            for each batch
    batches u32 | CRC-32 u32 of everything before | "HERONLND"            the trailer

All numbers are little-endian; the header is a msgpack map. The batches stay what they were on the wire: opaque. A log
is read as a whole, so it has one checksum, which the manifest has as well.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import msgspec

from heronpy.checkpoints._header import U32_MAX, U64_MAX, check_name
from heronpy.checkpoints._names import log_name
from heronpy.errors import CheckpointError

LOG_FORMAT: Final = 1
LOG_OBJECT_BYTES_MAX: Final = 512 * 1024 * 1024
_MAGIC: Final = b"HERONLG\0"
_END_MAGIC: Final = b"HERONLND"
_PREFIX = struct.Struct("<8sHI")
_BATCH = struct.Struct("<III")
_TRAILER = struct.Struct("<II8s")


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch as it came to the task."""

    source: int
    """Id of the task that sent it."""
    data: bytes
    skip: int = 0
    """So many tuples at its beginning are executed already."""


class LogHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose log it is, and of which checkpoint."""

    topology_id: str
    component: str
    index: int
    """Of the task in its component."""
    tasks: int
    checkpoint_id: int
    epoch: int

    def __post_init__(self) -> None:
        check_name("topology id", self.topology_id)
        check_name("component", self.component)
        if not 0 <= self.index < self.tasks <= U32_MAX:
            raise ValueError(f"task {self.index} of {self.tasks}")
        if not (0 < self.checkpoint_id <= U64_MAX and 0 <= self.epoch <= U32_MAX):
            raise ValueError(f"checkpoint {self.checkpoint_id}, epoch {self.epoch}")


class LogRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="log"):
    """A log, as a manifest names it. What is also in its header must be equal to it."""

    name: str
    component: str
    index: int
    tasks: int
    checkpoint_id: int
    epoch: int
    batches: int
    size: int
    checksum: int
    """CRC-32 of everything before the trailer's own fields."""

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.tasks or not 0 < self.size <= LOG_OBJECT_BYTES_MAX:
            raise ValueError(f"log {self.name}: task {self.index} of {self.tasks}, {self.size} bytes")


def encode_log(header: LogHeader, batches: Iterable[LoggedBatch]) -> tuple[list[bytes], LogRef]:
    """A log, in pieces, and how a manifest names it. The batches are not copied.

    Args:
        header: Whose.
        batches: In the order in which they are to be executed.

    Raises:
        CheckpointError: it is too large.
    """
    name = log_name(header)
    body = msgspec.msgpack.encode(header)
    pieces = [_PREFIX.pack(_MAGIC, LOG_FORMAT, len(body)) + body]
    count = 0
    for batch in batches:
        pieces += (_BATCH.pack(batch.source, batch.skip, len(batch.data)), batch.data)
        count += 1
    size = sum(map(len, pieces)) + _TRAILER.size
    if size > LOG_OBJECT_BYTES_MAX:
        raise CheckpointError(f"{name}: it has {size} bytes, and {LOG_OBJECT_BYTES_MAX} are allowed")
    checksum = 0
    for piece in pieces:
        checksum = crc32(piece, checksum)
    pieces.append(_TRAILER.pack(count, checksum, _END_MAGIC))
    ref = LogRef(
        name=name,
        component=header.component,
        index=header.index,
        tasks=header.tasks,
        checkpoint_id=header.checkpoint_id,
        epoch=header.epoch,
        batches=count,
        size=size,
        checksum=checksum,
    )
    return pieces, ref


def decode_log(data: bytes, ref: LogRef, topology_id: str) -> tuple[LoggedBatch, ...]:
    """Read and check a log.

    Args:
        data: All of it.
        ref: How the manifest names it.
        topology_id: Whose it must be.

    Raises:
        CheckpointError: torn, damaged, another one than the manifest names, or written by a later release.
    """
    if len(data) != ref.size or len(data) < _PREFIX.size + _TRAILER.size:
        raise _damaged(ref, f"it has {len(data)} bytes, not {ref.size}: it is truncated, or another one")
    end = len(data) - _TRAILER.size
    count, checksum, end_magic = _TRAILER.unpack_from(data, end)
    magic, version, length = _PREFIX.unpack_from(data)
    if (magic, end_magic) != (_MAGIC, _END_MAGIC):
        raise _damaged(ref, "it does not begin and end as a log does: it is torn, or another kind of file")
    if version != LOG_FORMAT:
        raise _damaged(ref, f"its format is {version}, and this release reads {LOG_FORMAT}")
    view = memoryview(data)
    if checksum != ref.checksum or crc32(view[:end]) != checksum:
        raise _damaged(ref, "its checksum is wrong")
    at = _PREFIX.size + length
    try:
        header = msgspec.msgpack.decode(view[_PREFIX.size : min(at, end)], type=LogHeader)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise _damaged(ref, f"its header is malformed: {e}") from e
    names = (ref.component, ref.index, ref.tasks, ref.checkpoint_id, ref.epoch)
    found = (header.component, header.index, header.tasks, header.checkpoint_id, header.epoch)
    if (header.topology_id, *found) != (topology_id, *names):
        raise _damaged(ref, f"it is not the one that the manifest names, but that of {header}")
    batches = []
    while at < end:
        if at + _BATCH.size > end:
            raise _damaged(ref, f"it ends within a batch at byte {at}")
        source, skip, length = _BATCH.unpack_from(data, at)
        at += _BATCH.size
        if at + length > end:
            raise _damaged(ref, f"its batch at byte {at} would have {length} bytes")
        batches.append(LoggedBatch(source, bytes(view[at : at + length]), skip))
        at += length
    if at != end or len(batches) != count or count != ref.batches:
        raise _damaged(ref, f"it has {len(batches)} batches, not {ref.batches}")
    return tuple(batches)


def read_log(
    logs: Iterable[LogRef], component: str, index: int, tasks: int, topology_id: str, read: Callable[[LogRef], bytes]
) -> tuple[LoggedBatch, ...]:
    """What task `index` of `tasks` has to execute before everything else; nothing if it logged nothing.

    Args:
        logs: All that a manifest names.
        component: The task's component.
        index: Of the task in it.
        tasks: How many the component has now.
        topology_id: Whose checkpoint it is.
        read: Reads a log as a whole.

    Raises:
        CheckpointError: a log is damaged; or the number of tasks is another one, and the component has a log.
    """
    own = [log for log in logs if log.component == component]
    if other := next((log for log in own if log.tasks != tasks), None):
        raise CheckpointError(
            f"checkpoint {other.checkpoint_id} has batches for {component!r} that were not executed, divided among "
            f"{other.tasks} tasks; now it has {tasks}: restore it with {other.tasks}, or take another checkpoint"
        )
    return tuple(batch for log in own if log.index == index for batch in decode_log(read(log), log, topology_id))


def _damaged(ref: LogRef, why: str) -> CheckpointError:
    return CheckpointError(f"checkpoint log {ref.name}: {why}")
