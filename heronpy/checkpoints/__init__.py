"""Checkpoints as they are stored: the format of objects and manifests, storages, and what is decided about them.

A checkpoint is a manifest and the objects that it names. Each task writes one object per checkpoint with what has
changed (`ObjectWriter`), and a log of what it still has to execute where there is such (`encode_log`); the manifest is
created last, on condition that there is none, so a checkpoint exists whole or not at all. Values are bytes here and
keys are plain: nothing is unpickled, so that a Checkpoint Manager, a Topology Master or a command line needs no code of
the user. The states themselves are in `heronpy.state`.

Pure, without clocks, threads, asyncio and gRPC: `read_saved` (what task i of m restores of a checkpoint of n tasks),
`next_manifest`, `should_compact` and `compact`, `removable_manifests` and `removable_objects`. Only a
`CheckpointStorage` talks: to a directory, S3, HDFS or Redis (`open_storage`). `heronpy.testing.checkpoints_kit` is what
one must do.

What is torn, truncated, flipped, foreign or written by a later release is a `CheckpointError` that names the object and
says why; nothing of it is used. A storage that does not answer is another error, and proves nothing. Checksums find
accidents, not adversaries: values are unpickled when they are restored, so users who can write to the storage can run
code in the topology's instances.
"""

from heronpy.checkpoints._arrow import ArrowStorage
from heronpy.checkpoints._compaction import compact, needed, next_manifest, should_compact
from heronpy.checkpoints._directory import DirectoryStorage
from heronpy.checkpoints._header import Header, Kind, StateEntry
from heronpy.checkpoints._intact import (
    Refused,
    check_intact,
    check_stored,
    find_intact,
    newest_intact,
    open_object,
    read_manifest,
)
from heronpy.checkpoints._log import LoggedBatch, LogHeader, LogRef, decode_log, encode_log, read_log
from heronpy.checkpoints._manifest import (
    ComponentEntry,
    Manifest,
    ObjectRef,
    OperatorEntry,
    decode_ref,
    encode_ref,
)
from heronpy.checkpoints._names import (
    MANIFESTS,
    OBJECTS,
    base_name,
    log_name,
    manifest_id,
    manifest_name,
    object_checkpoint_id,
    object_name,
)
from heronpy.checkpoints._object import (
    DELETED,
    Block,
    BytesSource,
    Entries,
    ObjectReader,
    Row,
    Source,
    encoded,
)
from heronpy.checkpoints._object_writer import RUN_BYTES, ObjectWriter
from heronpy.checkpoints._redis import RedisStorage
from heronpy.checkpoints._restore import (
    NOTHING_SAVED,
    MergedBlock,
    ReadAhead,
    Saved,
    SavedState,
    check_complete,
    parts_for,
    read_saved,
    reads_on,
)
from heronpy.checkpoints._retention import references, removable_manifests, removable_objects
from heronpy.checkpoints._s3 import S3Storage
from heronpy.checkpoints._spooled import SpooledSource
from heronpy.checkpoints._storage import (
    CheckpointStorage,
    Listed,
    StoredObject,
    check_storage_name,
    open_storage,
    storage_below,
)

__all__ = [
    "DELETED",
    "MANIFESTS",
    "NOTHING_SAVED",
    "OBJECTS",
    "RUN_BYTES",
    "ArrowStorage",
    "Block",
    "BytesSource",
    "CheckpointStorage",
    "ComponentEntry",
    "DirectoryStorage",
    "Entries",
    "Header",
    "Kind",
    "Listed",
    "LogHeader",
    "LogRef",
    "LoggedBatch",
    "Manifest",
    "MergedBlock",
    "ObjectReader",
    "ObjectRef",
    "ObjectWriter",
    "OperatorEntry",
    "ReadAhead",
    "RedisStorage",
    "Refused",
    "Row",
    "S3Storage",
    "Saved",
    "SavedState",
    "Source",
    "SpooledSource",
    "StateEntry",
    "StoredObject",
    "base_name",
    "check_complete",
    "check_intact",
    "check_storage_name",
    "check_stored",
    "compact",
    "decode_log",
    "decode_ref",
    "encode_log",
    "encode_ref",
    "encoded",
    "find_intact",
    "log_name",
    "manifest_id",
    "manifest_name",
    "needed",
    "newest_intact",
    "next_manifest",
    "object_checkpoint_id",
    "object_name",
    "open_object",
    "open_storage",
    "parts_for",
    "read_log",
    "read_manifest",
    "read_saved",
    "reads_on",
    "references",
    "removable_manifests",
    "removable_objects",
    "should_compact",
    "storage_below",
]
