"""Every parser of bytes that somebody else has written, as a function that takes any bytes at all.

A parser may refuse: with a HeronError, or protobuf's DecodeError where the transport would refuse the message before.
Whatever else it raises is a bug, and so is memory or time beyond what its input is worth; the runners bound both.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from heron_scheduler.driven import DriverReport, Order, Orders
from heron_tracker import parse_query

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.archive import Archive, ArchiveWriter
from heronpy.checkpoints import (
    BytesSource,
    LoggedBatch,
    LogHeader,
    LogRef,
    ObjectReader,
    decode_log,
    decode_ref,
    encode_log,
    encode_ref,
)
from heronpy.checkpoints import Manifest as CheckpointManifest
from heronpy.cli.parts import readable_line
from heronpy.container import Bootstrap
from heronpy.errors import HeronError
from heronpy.host import HostProcess, PidFiles, pid_path, read_pids
from heronpy.instance.task import InBatch, RootRing
from heronpy.metricsmgr import Ledger
from heronpy.packing import RoundRobinPacking
from heronpy.pipeline import Manifest
from heronpy.pipeline.batch import Batch, Parts, Seen
from heronpy.pipeline.manifest import HISTORY
from heronpy.pipeline.record import Record, figures, read_record
from heronpy.plan import LogicalPlan, PackingPlan, PhysicalPlan, TopologyState, read_config
from heronpy.proto import loglevels_pb2, metrics_pb2, plan_pb2, state_pb2, topology_pb2
from heronpy.runtime import Heartbeat, Launch, StatemgrSpec, level_for, read_beat
from heronpy.statemgr import container_record, records
from heronpy.testing.checkpoints_kit import small_checkpoint
from heronpy.wire import control_batch, decode_control, decode_roots, decode_tuples, root_batch, tuple_batch

_LOG_TRAILER_BYTES = 16
_FORMAT_1 = next((Path(__file__).parents[1] / "unit" / "checkpoint_format_1").rglob("*.delta"))
_FORMER_MANIFESTS = [
    b'{"format": 1, "batch_length_ms": 1000, "closed_upto": 3, "batches": {"3": {"version": "v", "fingerprint": "f"}}}',
    b'{"format": 2, "batch_length_ms": 1000, "committed_watermark": 3, "batches": {"3": {"version": "v", "fingerprint":'
    b' "f"}}, "bases": {"counts": {"version": "b", "upto": 3, "batches": {"3": "v"}}}}',
]
REFUSALS = (HeronError, DecodeError)


@dataclass(frozen=True)
class Parser:
    """What is fuzzed."""

    parse: Callable[[bytes], object]
    seeds: Sequence[bytes]
    """Valid inputs to begin with."""


class _Words(Spout):
    outputs = ("word",)


class _Count(Bolt):
    outputs = ("word", "n")


def _topology() -> topology_pb2.Topology:
    builder = TopologyBuilder("Fuzzed")
    words = builder.add_spout("words", _Words, 2, config={"mine": [1, "two", {"three": 3.0}]})
    count = builder.add_bolt("count", _Count, 3, {words: Grouping.fields("word")})
    builder.add_bolt("last", _Count, 1, {count: Grouping.SHUFFLE})
    topology = builder.build().protobuf_topology
    topology.id = "Fuzzed-1"  # else it is another one in each process
    return topology


SHARED_MEMORY = Path("/dev/shm")
SCRATCH = (SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())) / f"heron-fuzz-{os.getpid()}"
"""Not on a disk where that can be: to write over a file thousands of times waits for the disk every time."""


def _directory(name: str) -> Path:
    path = SCRATCH / name
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _tuples(data: bytes) -> None:
    tuples = decode_tuples(data)
    found = tuples.deserialized(lambda part: [part])
    assert sum(map(len, found)) == len(tuples.values)
    if tuples.count > 1 << 16:
        return  # whoever has deserialized the values refuses another number of them
    batch = InBatch(tuples, "component", "default", ("field",))
    batch.marks[:] = b"\1" * tuples.count
    acked, _, _ = batch.settle()
    batch.ack_values(acked)


def _acks(data: bytes) -> None:
    ring = RootRing(1, keep_ids=True, first=(1 << 43) - 5)
    ring.commit(8, list(range(8)), [(np.arange(ring.next, ring.next + 8), np.arange(8, dtype=np.uint64))], 0)
    roots = decode_roots(data, with_values=True)
    ring.ack(roots.roots, roots.values, 1)
    ring.reset_timeout(roots.roots, 2)
    ring.fail(roots.roots, 3)
    ring.check_invariants()


def _physical(data: bytes) -> None:
    plan = PhysicalPlan.from_proto(plan_pb2.PhysicalPlan.FromString(data))
    plan.to_proto()


def _packing(data: bytes) -> None:
    PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(data)).to_proto()


def _logical(data: bytes) -> None:
    LogicalPlan.from_proto(topology_pb2.Topology.FromString(data))


def _launch(data: bytes) -> None:
    directory = _directory("launch")
    (directory / "launch.json").write_bytes(data)
    Launch.load(directory)


def _launch_seed() -> bytes:
    directory = _directory("seed")
    Launch(
        topology="t", topology_id="t-1", cluster="local", role="r", environ="e", statemgr=StatemgrSpec(), dir=directory
    ).save()
    return (directory / "launch.json").read_bytes()


def _archive(data: bytes) -> None:
    directory = _directory("archive")
    if not Archive(directory).exists:
        _archive_seed(directory)
    batch = directory / "batch=0"
    for path in batch.iterdir():
        path.unlink()
    (batch / "1.parquet").write_bytes(data)
    archive = Archive(directory)
    files = archive.batches()[0]
    refused: list[str] = []
    good, _ = archive.check(files)
    for split in archive.splits(good, 1 << 20):
        for chunk in split.read(lambda where, row, reason: refused.append(reason)):
            len(chunk.values)


def _archive_seed(directory: Path) -> bytes:
    writer = ArchiveWriter(directory, task="t-0", batch_length_ms=1000, codec="columns", dead_letter=print)
    for index in range(20):
        writer.add(f"id-{index}", index, {"text": f"t{index}", "n": index if index % 2 else index / 3, "some": [1]})
    writer.commit()
    return next((directory / "batch=0").iterdir()).read_bytes()


def _schema(data: bytes) -> None:
    directory = _directory("schema")
    (directory / "_schema.json").write_bytes(data)
    archive = Archive(directory)
    _ = archive.exists, archive.schema, archive.codec, archive.batch_length_ms


def _progress(data: bytes) -> None:
    directory = _directory("progress")
    (directory / "_progress").mkdir(exist_ok=True)
    (directory / "_progress" / "run@0.json").write_bytes(data)
    Archive(directory).complete_before_ms()


def _manifest(data: bytes) -> None:
    directory = _directory("manifest")
    (directory / "manifest.json").write_bytes(data)
    manifest = Manifest.load(directory, 1000)
    manifest.view_rows("counts")


def _manifest_seeds() -> tuple[bytes, bytes]:
    """A manifest, and its only segment."""
    directory = _directory("segment")
    manifest = Manifest(1000, 3)
    manifest.batches[3] = Batch("v", "f", views={"counts": Parts(2, [2])}, monoids={"counts": "Sum"})
    manifest.batches.set_seen("events", 3, Seen("e-1.parquet 10 1", "f:1", files=1))
    manifest.save(directory)
    (segment,) = manifest.segment_files()
    return (directory / "manifest.json").read_bytes(), (directory / HISTORY / segment).read_bytes()


def _manifest_segment(data: bytes) -> None:
    """With a manifest that names these very bytes, so that what is behind the checksum is parsed, too."""
    directory = _directory("segment")
    path = directory / "manifest.json"
    root = msgspec.json.decode(path.read_bytes())
    (segment,) = root["segments"]
    segment["digest"] = hashlib.blake2b(data, digest_size=16).hexdigest()
    path.write_bytes(msgspec.json.encode(root))
    (directory / HISTORY / segment["name"]).write_bytes(data)
    manifest = Manifest.load(directory, 1000)
    manifest.read_plan("counts")
    manifest.batches.seen("events", 3)


def _checkpoint_object(data: bytes) -> None:
    try:
        _read_object(data)
    except HeronError:
        _read_object(with_checksums(data))  # what lies behind them


def _read_object(data: bytes) -> None:
    reader = ObjectReader(BytesSource("fuzzed", data))
    header = reader.header
    for groups in (None, range(header.first_group, (header.first_group + header.end_group) // 2)):
        for block in reader.blocks(groups=groups):
            len(block.keys)
    reader.bytes_by_group()


def with_checksums(data: bytes) -> bytes:
    """The same object with the right checksums, as far as its lengths make sense."""
    sealed = bytearray(data)
    with contextlib.suppress(struct.error):
        offset, length = struct.unpack_from("<QI", data, len(data) - 24)
        version, header_length = struct.unpack_from("<HI", data, 8)
        record = 28 if version == 1 else 32
        checksum = struct.pack("<I", crc32(data[18 : 18 + header_length]))
        sealed[14:18] = checksum
        sealed[offset : offset + 8] = data[10:14] + checksum
        for at in range(offset + 8, min(offset + length, len(data) - 24) - record + 1, record):
            block, size = struct.unpack_from("<QI", data, at)
            sealed[at + record - 4 : at + record] = struct.pack("<I", crc32(data[block : block + size]))
        sealed[-12:-8] = struct.pack("<I", crc32(sealed[offset : offset + length]))
    return bytes(sealed)


_LOGGED = LogHeader(topology_id="kit-1", component="count", index=0, tasks=1, checkpoint_id=12, epoch=1)


def _checkpoint_log(data: bytes) -> None:
    _, ref = encode_log(_LOGGED, [])
    if not data:
        return
    # As a manifest that names these very bytes, so that what is behind the checksum is parsed, too.
    body, trailer = data[:-_LOG_TRAILER_BYTES], data[-_LOG_TRAILER_BYTES:]
    count = int.from_bytes(trailer[:4], "little")
    whole = body + trailer[:4] + crc32(body).to_bytes(4, "little") + trailer[8:]
    changed = {"size": len(whole), "batches": count, "checksum": crc32(body)}
    decode_log(whole, LogRef(**{**msgspec.structs.asdict(ref), **changed}), "kit-1")


def _checkpoint_manifest(data: bytes) -> None:
    for sealed in (data, data[:-15] + b"crc32 %08x\n" % crc32(data[:-15])):
        with contextlib.suppress(HeronError):
            CheckpointManifest.decode(sealed, "manifests/00000000000000000012.json")


def _query(data: bytes) -> None:
    parse_query(data.decode("utf-8", "replace"))


def _report(data: bytes) -> None:
    ledger = Ledger(sources_max=10)
    for report in metrics_pb2.MetricsReports.FromString(data).reports:
        ledger.add(report, 1.0)
        ledger.add(report, 2.0)
    ledger.check_invariants()


def _levels(data: bytes) -> None:
    level_for(loglevels_pb2.LogLevels.FromString(data), process="container_1_words_1", component="words")


def _config(data: bytes) -> None:
    read_config(topology_pb2.Config.FromString(data))


def _nodes(data: bytes) -> None:
    for parse in (
        records.execution_state,
        records.definition,
        records.packing_plan,
        records.physical_plan,
        records.tmaster_location,
        records.scheduler_location,
        records.log_levels,
        records.checkpoints,
        records.epoch,
    ):
        with contextlib.suppress(HeronError):
            parse("words", data)
    container_record(data)


def _driver(data: bytes) -> None:
    for decode in (Orders.decode, DriverReport.decode):
        with contextlib.suppress(HeronError):
            decode(data)


def _pid_file(data: bytes) -> None:
    directory = _directory("pids")
    path = pid_path(directory, "words")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    read_pids(directory)


def _pid_seed() -> bytes:
    directory = _directory("pid-seed")
    me = HostProcess.of(os.getpid())
    assert me is not None
    PidFiles(directory).started("words", me)
    return pid_path(directory, "words").read_bytes()


def _heartbeat(data: bytes) -> None:
    path = _directory("heartbeats") / "words"
    path.write_bytes(data)
    read_beat(path)


def _heartbeat_seed() -> bytes:
    path = _directory("heartbeat-seed") / "words"
    with contextlib.closing(Heartbeat(path)) as heartbeat:
        heartbeat.beat()
    return path.read_bytes()


def _batch_side(data: bytes) -> None:
    figures(read_record(data), 1)


def _seed_plan() -> plan_pb2.PhysicalPlan:
    logical = LogicalPlan.from_proto(_topology())
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), (), TopologyState.RUNNING).to_proto()


def parsers() -> Mapping[str, Parser]:
    """All of them, by name."""
    ids = np.arange(3, dtype=np.uint64)
    streams = np.array([0, 1, 0])
    one = tuple_batch(src_task=1, dest_task=2, streams=["s"], count=3, values=b"v", ids=ids, roots=ids).body
    many = tuple_batch(
        src_task=1,
        dest_task=2,
        streams=["a", "b"],
        stream_indexes=streams,
        count=3,
        values=b"v",
        ids=ids,
        roots=ids,
        root_counts=np.array([2, 0, 1]),
    ).body
    parts = tuple_batch(src_task=1, dest_task=2, streams=["s"], count=3, values=b"vww", part_sizes=[1, 2]).body
    plan = _seed_plan()
    topology = plan.topology.SerializeToString()
    report = metrics_pb2.MetricsReports(reports=[metrics_pb2.MetricsReport()])
    level = loglevels_pb2.LogLevels(levels=[loglevels_pb2.LogLevel()])
    launch = _launch_seed()
    checkpoint, pieces = small_checkpoint(12, {"a": b"1", "b": b"22", "c": b""})
    manifest, segment = _manifest_seeds()
    logged, log = encode_log(_LOGGED, [LoggedBatch(3, b"abc", 1), LoggedBatch(4, b"")])
    return {
        "tuples": Parser(_tuples, [one, many, parts]),
        "acks": Parser(_acks, [root_batch(1, 1, ids, ids).body]),
        "control": Parser(decode_control, [control_batch(1, 2, watermark=7).body, control_batch(1, 2, held=3).body]),
        "logical-plan": Parser(_logical, [topology]),
        "packing-plan": Parser(_packing, [plan.packing.SerializeToString()]),
        "physical-plan": Parser(_physical, [plan.SerializeToString()]),
        "config": Parser(_config, [plan.topology.topology_config.SerializeToString()]),
        "launch": Parser(_launch, [launch]),
        "archive-file": Parser(_archive, [_archive_seed(_directory("archive"))]),
        "archive-schema": Parser(_schema, [(_directory("archive") / "_schema.json").read_bytes()]),
        "archive-progress": Parser(_progress, [b'{"tasks": 1, "before_ms": 5, "began_ms": 1, "ended": false}']),
        "manifest": Parser(_manifest, [manifest, *_FORMER_MANIFESTS]),
        "manifest-segment": Parser(_manifest_segment, [segment]),
        "checkpoint-object": Parser(_checkpoint_object, [b"".join(pieces), _FORMAT_1.read_bytes()]),
        "checkpoint-manifest": Parser(_checkpoint_manifest, [checkpoint.encode()]),
        "checkpoint-log": Parser(_checkpoint_log, [b"".join(logged)]),
        "checkpoint-reference": Parser(decode_ref, [encode_ref(log), encode_ref(checkpoint.objects[0])]),
        "query": Parser(_query, [b"DEFAULT(0, SUM(TS(c, *, __emit-count/default), RATE(TS(c, i, m))))"]),
        "metrics": Parser(_report, [report.SerializeToString()]),
        "log-levels": Parser(_levels, [level.SerializeToString()]),
        "log-lines": Parser(readable_line, [b'{"ts": "1", "level": "INFO", "logger": "x", "message": ["y"]}\nplain\n']),
        "nodes": Parser(_nodes, [state_pb2.ExecutionState(topology_id="w-1").SerializeToString(), topology]),
        "driver": Parser(
            _driver,
            [
                Orders(topology_id="w-1", containers={0: Order(1, 2)}).encode(),
                DriverReport(topology_id="w-1", host="h", pid=1).encode(),
            ],
        ),
        "bootstrap": Parser(
            Bootstrap.decode, [Bootstrap(container=1, values=json.loads(launch), files={"token": "t"}).encode()]
        ),
        "pid-file": Parser(_pid_file, [_pid_seed()]),
        "heartbeat": Parser(_heartbeat, [_heartbeat_seed()]),
        "batch-side": Parser(_batch_side, [Record(job="j", at_ms=1, batch_length_ms=1000, waiting=3).encode()]),
    }


def survives(parser: Parser, data: bytes) -> None:
    """Parse, and let through what a parser may raise.

    Raises:
        Exception: anything else: a bug.
    """
    try:
        parser.parse(data)
    except REFUSALS:
        return
