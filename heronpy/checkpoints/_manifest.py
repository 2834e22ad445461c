"""The manifest of a checkpoint: written last, it names all objects. A checkpoint without one does not exist."""

from __future__ import annotations

import re
from typing import Final, Self
from zlib import crc32

import msgspec

from heronpy.checkpoints._header import GROUPS_MAX, U32_MAX, U64_MAX
from heronpy.checkpoints._log import LogRef
from heronpy.checkpoints._names import manifest_name
from heronpy.checkpoints._object import ObjectReader
from heronpy.checkpoints._object_writer import ObjectWriter
from heronpy.errors import CheckpointError

MANIFEST_FORMAT: Final = 1
MANIFEST_BYTES_MAX: Final = 256 * 1024 * 1024
_CHECKSUM = re.compile(rb"crc32 ([0-9a-f]{8})\n")
_CHECKSUM_BYTES = len(b"crc32 00000000\n")


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="state"):
    """An object, as a manifest names it. What is also in the object's header must be equal to it."""

    name: str
    component: str
    index: int
    tasks: int
    generation: int
    checkpoint_id: int
    since: int
    first_group: int
    end_group: int
    size: int
    checksum: int
    """CRC-32 of the object's index, which has those of everything else."""

    @classmethod
    def of(cls, written: ObjectWriter | ObjectReader, name: str) -> Self:
        """Of an object that is complete."""
        header = written.header
        return cls(
            name=name,
            component=header.component,
            index=header.index,
            tasks=header.tasks,
            generation=header.generation,
            checkpoint_id=header.checkpoint_id,
            since=header.since,
            first_group=header.first_group,
            end_group=header.end_group,
            size=written.size,
            checksum=written.checksum,
        )

    @property
    def groups(self) -> range:
        """The key groups that it covers."""
        return range(self.first_group, self.end_group)

    def __post_init__(self) -> None:
        if not 0 <= self.first_group < self.end_group <= GROUPS_MAX or not 0 <= self.since < self.checkpoint_id:
            raise ValueError(f"object {self.name}: groups or checkpoints that cannot be")


class OperatorEntry(msgspec.Struct, frozen=True, array_like=True):
    """An operator of a streamlet program, as `heronpy.plan.StateOwner`."""

    kind: str
    place: str


class ComponentEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A component with state."""

    tasks: int
    generation: int
    """As in `Header`."""
    operators: dict[str, OperatorEntry] = {}
    """By name, those of its operators that have state; none where it is of no streamlet program, or not known."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a checkpoint is made of."""

    format: int = MANIFEST_FORMAT
    topology_id: str
    checkpoint_id: int
    epoch: int
    groups: int
    components: dict[str, ComponentEntry]
    objects: tuple[ObjectRef, ...]
    logs: tuple[LogRef, ...] = ()
    """Of this very checkpoint: what is to be executed before everything else."""
    created_ms: int = 0
    """Since 1970; 0: not known. For people."""
    duration_ms: int = 0
    """From the checkpoint's begin to this manifest; 0: not known."""

    def __post_init__(self) -> None:
        if self.format != MANIFEST_FORMAT:
            raise ValueError(f"its format is {self.format}, and this release reads {MANIFEST_FORMAT}")
        if not (0 < self.checkpoint_id <= U64_MAX and 0 <= self.epoch <= U32_MAX and 0 < self.groups <= GROUPS_MAX):
            raise ValueError(f"checkpoint {self.checkpoint_id}, epoch {self.epoch}, {self.groups} key groups")
        for name, component in self.components.items():
            if not 0 < component.tasks <= self.groups or not 0 <= component.generation <= self.checkpoint_id:
                raise ValueError(f"component {name!r} of {component.tasks} tasks")
        for ref in self.objects:
            if ref.component not in self.components or ref.checkpoint_id > self.checkpoint_id:
                raise ValueError(f"object {ref.name} of {ref.component!r} in checkpoint {ref.checkpoint_id}")
            if ref.end_group > self.groups:
                raise ValueError(f"object {ref.name} has key group {ref.end_group}, of {self.groups}")
        for log in self.logs:
            if (log.checkpoint_id, log.epoch) != (self.checkpoint_id, self.epoch):
                raise ValueError(f"log {log.name} of checkpoint {log.checkpoint_id}, epoch {log.epoch}")

    @property
    def name(self) -> str:
        """Where it is stored."""
        return manifest_name(self.checkpoint_id)

    @property
    def names(self) -> list[str]:
        """Of all objects and logs."""
        return [*(ref.name for ref in self.objects), *(log.name for log in self.logs)]

    @property
    def size(self) -> int:
        """Bytes of all objects and logs."""
        return sum(ref.size for ref in self.objects) + self.logged

    @property
    def added(self) -> int:
        """Bytes of those that were written for this checkpoint."""
        own = sum(ref.size for ref in self.objects if ref.checkpoint_id == self.checkpoint_id)
        return own + self.logged

    @property
    def logged(self) -> int:
        """Bytes of what tasks had yet to execute."""
        return sum(log.size for log in self.logs)

    def encode(self) -> bytes:
        """JSON in one line, and its checksum in another."""
        body = msgspec.json.encode(self) + b"\n"
        return body + b"crc32 %08x\n" % crc32(body)

    @classmethod
    def decode(cls, data: bytes, name: str) -> Self:
        """Read and check one.

        Raises:
            CheckpointError: torn, damaged, of another checkpoint than its name says, or by a later release.
        """
        body, last = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        found = _CHECKSUM.fullmatch(last)
        if found is None:
            raise CheckpointError(f"{name}: it does not end with its checksum: it is torn or truncated")
        if int(found[1], 16) != crc32(body):
            raise CheckpointError(f"{name}: its checksum is wrong")
        try:
            manifest = msgspec.json.decode(body, type=cls)
        except (msgspec.MsgspecError, ValueError, RecursionError) as e:
            raise CheckpointError(f"{name}: it is malformed: {e}") from e
        if manifest.name != name:
            raise CheckpointError(f"{name}: it is that of checkpoint {manifest.checkpoint_id}")
        return manifest

    def check(self, ref: ObjectRef, reader: ObjectReader) -> None:
        """Check that an object is the one that this manifest names.

        Raises:
            CheckpointError: it is another one.
        """
        header = reader.header
        if ObjectRef.of(reader, ref.name) != ref:
            raise CheckpointError(
                f"checkpoint object {ref.name}: it is not the one that {self.name} names, but {header}"
            )
        if (header.topology_id, header.groups) != (self.topology_id, self.groups):
            raise CheckpointError(
                f"checkpoint object {ref.name}: it has {header.groups} key groups and is of topology "
                f"{header.topology_id}; {self.name} has {self.groups} and is of {self.topology_id}"
            )


def encode_ref(ref: ObjectRef | LogRef) -> bytes:
    """How a task reports what it wrote: `SnapshotStored.objects`, `ManifestRequest.objects`."""
    return msgspec.json.encode(ref)


def decode_ref(data: bytes) -> ObjectRef | LogRef:
    """What `encode_ref` has made.

    Raises:
        CheckpointError: it is something else.
    """
    try:
        return msgspec.json.decode(data, type=ObjectRef | LogRef)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise CheckpointError(f"a reference to a checkpoint object is malformed: {e}") from e
