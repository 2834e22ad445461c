"""Alignment logs are read as they were written, or refused by name."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.checkpoints import (
    LoggedBatch,
    LogHeader,
    LogRef,
    Manifest,
    decode_log,
    decode_ref,
    encode_log,
    encode_ref,
    log_name,
    read_log,
    references,
    removable_objects,
)
from heronpy.errors import CheckpointError
from heronpy.testing.checkpoints_kit import small_checkpoint

BATCHES = st.lists(
    st.builds(LoggedBatch, st.integers(0, 2**32 - 1), st.binary(max_size=50), st.integers(0, 2**32 - 1)), max_size=8
)
SMALL = (LoggedBatch(3, b"abc", 1), LoggedBatch(4, b""), LoggedBatch(3, b"de"))


def header(index: int = 1, checkpoint_id: int = 9, component: str = "count") -> LogHeader:
    return LogHeader(
        topology_id="words-1", component=component, index=index, tasks=4, checkpoint_id=checkpoint_id, epoch=3
    )


def encoded(*batches: LoggedBatch, of: LogHeader | None = None) -> tuple[bytes, LogRef]:
    pieces, ref = encode_log(of or header(), batches)
    data = b"".join(pieces)
    assert len(data) == ref.size
    return data, ref


def refused(data: bytes, ref: LogRef, topology_id: str = "words-1") -> str:
    with pytest.raises(CheckpointError) as error:
        decode_log(data, ref, topology_id)
    assert str(error.value).startswith(f"checkpoint log {ref.name}: ")
    assert "\n" not in str(error.value)
    return str(error.value)


@given(BATCHES)
def test_what_is_written_is_read(batches: list[LoggedBatch]) -> None:
    data, ref = encoded(*batches)
    assert decode_log(data, ref, "words-1") == tuple(batches)
    assert ref.batches == len(batches)
    assert ref.name == log_name(header())


def test_every_flipped_bit_is_found() -> None:
    data, ref = encoded(*SMALL)
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            refused(bytes(changed), ref)


def test_every_truncation_is_refused_also_if_the_manifest_has_that_size() -> None:
    data, ref = encoded(*SMALL)
    for length in range(len(data)):
        assert "truncated" in refused(data[:length], ref)
        if length:
            refused(data[:length], msgspec.structs.replace(ref, size=length))
    assert "truncated" in refused(data + b"x", ref)


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_any_bytes_are_refused_or_read_and_nothing_else(body: bytes, checksum: int) -> None:
    _, ref = encoded(*SMALL)
    if body:
        refused(body, msgspec.structs.replace(ref, size=len(body), checksum=checksum))


def test_the_log_of_another_is_refused() -> None:
    data, ref = encoded(*SMALL)
    assert "the manifest names" in refused(data, ref, "words-2")
    for change in ({"index": 2}, {"checkpoint_id": 10}, {"component": "sum"}, {"epoch": 4}, {"tasks": 5}):
        assert "the manifest names" in refused(data, msgspec.structs.replace(ref, **change))
    other, _ = encoded(*SMALL[:2], of=header(2))
    assert refused(other, msgspec.structs.replace(ref, size=len(other))).endswith("its checksum is wrong")


def test_a_task_reads_its_own_log_and_another_number_of_tasks_is_refused() -> None:
    data, ref = encoded(*SMALL)
    other = encoded(LoggedBatch(1, b"x"), of=header(2))
    elsewhere = encoded(LoggedBatch(1, b"y"), of=header(component="sum"))
    stored = {ref.name: data, other[1].name: other[0], elsewhere[1].name: elsewhere[0]}
    logs = [ref, other[1], elsewhere[1]]

    def read(component: str, index: int, tasks: int) -> tuple[LoggedBatch, ...]:
        return read_log(logs, component, index, tasks, "words-1", lambda log: stored[log.name])

    assert read("count", 1, 4) == SMALL
    assert read("count", 2, 4) == (LoggedBatch(1, b"x"),)
    assert read("count", 0, 4) == ()
    assert read("none", 0, 1) == ()
    with pytest.raises(CheckpointError, match="divided among 4 tasks; now it has 3"):
        read("count", 0, 3)


def test_a_manifest_names_logs_of_its_own_checkpoint_only() -> None:
    manifest = Manifest(
        topology_id="words-1", checkpoint_id=9, epoch=3, groups=16, components={}, objects=(), logs=(encoded()[1],)
    )
    assert Manifest.decode(manifest.encode(), manifest.name) == manifest
    with pytest.raises(ValueError, match="of checkpoint 8"):
        msgspec.structs.replace(manifest, logs=(encoded(of=header(checkpoint_id=8))[1],))


def test_logs_are_deleted_with_the_only_checkpoint_that_needs_them() -> None:
    old, new = encoded(of=header(checkpoint_id=8))[1], encoded()[1]
    manifest = Manifest(
        topology_id="words-1", checkpoint_id=9, epoch=3, groups=16, components={}, objects=(), logs=(new,)
    )
    assert references([manifest]) == {new.name: 1}
    assert removable_objects([old.name, new.name], [manifest], 9) == [old.name]


def test_references_are_reported_as_they_are() -> None:
    log = encoded(*SMALL)[1]
    state = small_checkpoint(1, {"a": b"1"})[0].objects[0]
    for ref in (log, state):
        assert decode_ref(encode_ref(ref)) == ref
    for wrong in (b"", b"{}", b'{"type":"log"}', b"[" * 10_000, encode_ref(log)[:-1]):
        with pytest.raises(CheckpointError, match="malformed"):
            decode_ref(wrong)
