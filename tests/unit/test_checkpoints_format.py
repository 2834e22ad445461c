"""Objects and manifests are read as they were written, or refused by name: torn, flipped, foreign, hostile."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.checkpoints import (
    DELETED,
    BytesSource,
    ComponentEntry,
    Header,
    Kind,
    Manifest,
    ObjectReader,
    ObjectRef,
    ObjectWriter,
    StateEntry,
    manifest_name,
    object_name,
)
from heronpy.errors import CheckpointError
from heronpy.hashing import decode_key, encode_key, key_group
from heronpy.testing.checkpoints_kit import small_checkpoint

GROUPS = 16
STATES = (StateEntry("counts", Kind.KEYED, "pickle", 1), StateEntry("offsets", Kind.SPLIT, "msgpack", 3))


def header(**changes: object) -> Header:
    fields: dict[str, object] = {
        "topology_id": "words-1",
        "component": "count",
        "index": 1,
        "tasks": 4,
        "generation": 0,
        "checkpoint_id": 1 << 63,
        "since": 7,
        "epoch": 3,
        "groups": GROUPS,
        "first_group": 0,
        "end_group": GROUPS,
        "states": STATES,
    }
    return Header(**{**fields, **changes})  # type: ignore[arg-type]


def written(entries: list[tuple[int, object, bytes | None]], of: Header | None = None) -> bytes:
    writer = ObjectWriter(of or header())
    for state, key, value in entries:
        raw = msgspec.Raw(encode_key(key))
        writer.add(state, key_group(key, GROUPS), (raw, None, DELETED if value is None else value, 7))
    writer.finish()
    data = b"".join(writer.chunks)
    assert len(data) == writer.size
    return data


def read(data: bytes) -> list[tuple[int, object, bytes | None]]:
    reader = ObjectReader(BytesSource("objects/count/1.delta", data))
    reader.verify()
    return [
        (reader.header.states.index(block.state), key, None if value == DELETED else value)
        for block in reader.blocks()
        for key, value in zip(block.keys, block.entries.values, strict=True)
    ]


KEYS = st.one_of(st.text(), st.integers(), st.binary(), st.none(), st.tuples(st.text(), st.integers()))
ENTRIES = st.lists(st.tuples(st.integers(0, 1), KEYS, st.none() | st.binary()), max_size=60)
SMALL = written([(0, "a", b"1"), (0, "b", None), (1, ("x", 3), b"22")])


@given(ENTRIES)
def test_what_is_written_is_read(entries: list[tuple[int, object, bytes | None]]) -> None:
    data = written(entries)
    assert sorted(read(data), key=repr) == sorted(entries, key=repr)
    reader = ObjectReader(BytesSource("x", data))
    assert reader.header == header()
    for group in range(GROUPS):
        for block in reader.blocks(groups=[group]):
            assert all(key_group(key, GROUPS) == group for key in block.keys)


def test_many_entries_make_blocks_of_bounded_size_and_a_group_is_read_alone() -> None:
    entries = [(0, n, bytes(1000)) for n in range(6000)]
    data = written(entries)
    source = Reads(data)
    reader = ObjectReader(source)
    source.reads.clear()
    found = [key for block in reader.blocks(groups=[5]) for key in block.keys]
    assert sorted(found) == [n for n in range(6000) if key_group(n, GROUPS) == 5]
    assert sum(length for _, length in source.reads) < len(data) / 8
    assert sorted(key for _, key, _ in read(data)) == list(range(6000))


def test_of_blocks_of_any_group_those_of_some_groups_are_picked() -> None:
    keys = [f"key-{n}" for n in range(500)]
    writer = ObjectWriter(header())
    writer.add_run(0, keys, list(range(500)), [n + 1 for n in range(500)])
    writer.add(0, key_group(("a", 1.5), GROUPS), (msgspec.Raw(encode_key(("a", 1.5))), None, "other", 0))
    writer.finish()
    reader = ObjectReader(BytesSource("x", b"".join(writer.chunks)))
    (run, other) = reader.blocks()
    assert (run.keys, list(run.entries.values), list(run.entries.stamps)) == (
        tuple(keys),
        list(range(500)),
        list(range(1, 501)),
    )
    assert other.keys == (("a", 1.5),)
    found = {group: list(reader.blocks(groups=[group])) for group in range(GROUPS)}
    for group, blocks in found.items():
        assert all(key_group(key, GROUPS) == group for block in blocks for key in block.keys)
        for block in blocks[:1]:
            assert [f"key-{value}" for value in block.entries.values] == list(block.keys)
            assert [value + 1 for value in block.entries.values] == list(block.entries.stamps)
    assert sum(len(block.keys) for blocks in found.values() for block in blocks) == 501
    assert sum(reader.bytes_by_group().values()) > 500


@dataclass
class Reads:
    """A source that notes down what is read."""

    data: bytes
    name: str = "objects/count/1.delta"
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        assert 0 <= offset <= offset + length <= len(self.data), "a length was believed before it was checked"
        return self.data[offset : offset + length]


def refused(data: bytes) -> str:
    with pytest.raises(CheckpointError) as error:
        list(ObjectReader(Reads(data)).blocks())
    assert str(error.value).startswith("checkpoint object objects/count/1.delta: ")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_truncation_is_refused() -> None:
    for length in range(len(SMALL)):
        assert "trunc" in refused(SMALL[:length]) or "index" in refused(SMALL[:length])


def test_every_flipped_bit_is_found() -> None:
    for at in range(len(SMALL)):
        for bit in range(8):
            data = bytearray(SMALL)
            data[at] ^= 1 << bit
            refused(bytes(data))


def test_an_object_with_something_before_or_after_it_is_refused() -> None:
    refused(SMALL + b"\0")
    refused(b"\0" + SMALL)
    refused(SMALL + SMALL)


@given(st.binary(max_size=300))
def test_other_files_are_refused(data: bytes) -> None:
    refused(data)
    refused(SMALL[:20] + data + SMALL[-24:])


def test_another_kind_of_file_and_a_later_format_are_named() -> None:
    assert "torn or truncated, or another kind of file" in refused(b"PK\3\4" + bytes(100))
    later = bytearray(SMALL)
    later[8] = 3
    assert "its format is 3, and this release reads 1 to 2" in refused(bytes(later))


def forged(
    of: bytes | None = None,
    blocks: list[bytes] | None = None,
    record: Callable[[int, int, int], tuple[int, int, int, int, int, int, int]] | None = None,
) -> bytes:
    """An object whose checksums are right and whose content is the caller's."""
    body = msgspec.msgpack.encode(header()) if of is None else of
    data = struct.pack("<8sHII", b"HERONST\0", 2, len(body), crc32(body)) + body
    index = struct.pack("<II", len(body), crc32(body))
    for block in [BLOCK] if blocks is None else blocks:
        fields = (record or (lambda o, n, c: (o, n, 0, 0, 1, 1, c)))(len(data), len(block), crc32(block))
        index += struct.pack("<QIIIIII", *fields)
        data += block
    return data + index + struct.pack("<QII8s", len(data), len(index), crc32(index), b"HERONEND")


BLOCK = msgspec.msgpack.encode([b"\xdd\0\0\0\1" + encode_key("a"), {}, [b"1"], [0]])


def test_the_forger_forges_well() -> None:
    assert read(forged()) == [(0, "a", b"1")]


@pytest.mark.parametrize(
    "record",
    [
        lambda o, n, c: (o, 0xFFFFFFFF, 0, 0, 1, 1, c),
        lambda o, n, c: (1 << 63, n, 0, 0, 1, 1, c),
        lambda o, n, c: (o - 1, n, 0, 0, 1, 1, c),
        lambda o, n, c: (o, n - 1, 0, 0, 1, 1, c),
        lambda o, n, c: (o, 0, 0, 0, 1, 0, c),
        lambda o, n, c: (o, n, 2, 0, 1, 1, c),
        lambda o, n, c: (o, n, 0, GROUPS, GROUPS + 1, 1, c),
        lambda o, n, c: (o, n, 0, 0, GROUPS + 1, 1, c),
        lambda o, n, c: (o, n, 0, 0xFFFFFFFF, 0xFFFFFFFF, 1, c),
        lambda o, n, c: (o, n, 0, 3, 3, 1, c),
        lambda o, n, c: (o, n, 0, 5, 3, 1, c),
        lambda o, n, c: (o, n, 0, 0, 1, 0xFFFFFFFF, c),
        lambda o, n, c: (o, n, 0, 0, 1, 2, c),
    ],
)
def test_an_index_that_lies_is_refused(
    record: Callable[[int, int, int], tuple[int, int, int, int, int, int, int]],
) -> None:
    refused(forged(record=record))


@pytest.mark.parametrize(
    "block",
    [
        b"\xc0",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
        msgspec.msgpack.encode([b"\xdd\xff\xff\xff\xff", {}, [b"1"], [0]]),
        msgspec.msgpack.encode([b"\x91" * 100_000, {}, [b"1"], [0]]),
        msgspec.msgpack.encode([b"\xa1a", {}, [b"1"], [0]]),
        msgspec.msgpack.encode([b"\x91\xa1a", {}, [], [0]]),
        msgspec.msgpack.encode([b"\x91\xa1a", {}, [b"1", b"2"], [0]]),
        msgspec.msgpack.encode([b"\x91\xa1a", {}, [b"1"], [0, 0]]),
        msgspec.msgpack.encode([b"\x91\xa1a", {1: b"x"}, [b"1"], [0]]),
        msgspec.msgpack.encode([b"\x91\xd4\x7f\0", {}, [b"1"], [0]]),
        msgspec.msgpack.encode([b"\x91\xa1a", {}, [[b"1"]], [0]]),
        msgspec.msgpack.encode([b"\x91\xa1a", {}, [{}], [0]]),
        b"\x94\xc4\x03\x91\xa1a\x80\x91" + b"\x91" * 100_000,
        msgspec.msgpack.encode([b"\x91\xc7\x01\x03\x91", {}, [b"1"], [0]]),
    ],
)
def test_a_block_that_lies_is_refused(block: bytes) -> None:
    refused(forged(blocks=[block]))


def test_a_key_that_has_no_group_here_is_refused_in_a_block_of_several_groups() -> None:
    # Whoever has no code of the user could not say which task it belongs to.
    block = msgspec.msgpack.encode([b"\x91\xa1a", {0: b"x"}, [b"1"], []])
    refused(forged(blocks=[block], record=lambda o, n, c: (o, n, 0, 3, 5, 1, c)))


@pytest.mark.parametrize(
    "changes",
    [
        {"index": 4},
        {"tasks": 17},
        {"groups": 15},
        {"groups": 1 << 40},
        {"end_group": 17},
        {"first_group": 16},
        {"since": 1 << 63},
        {"checkpoint_id": 0},
        {"epoch": -1},
        {"epoch": 1 << 32},
        {"component": ""},
        {"topology_id": "x" * 300},
        {"unknown": 1},
        {"states": [["counts", "keyed", "pickle"]]},
        {"states": [["counts", "other", "pickle", 1]]},
        {"states": [["", "keyed", "pickle", 1]]},
    ],
)
def test_a_header_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    fields = msgspec.to_builtins(header())
    refused(forged(of=msgspec.msgpack.encode({**fields, **changes})))


def test_names_say_checkpoint_epoch_and_task_and_stay_below_one_directory() -> None:
    assert object_name(header()) == "objects/count/09223372036854775808-3-1of4.delta"
    assert object_name(header(since=0)).endswith("-3-1of4.base")
    for component in ("..", ".hidden", "a/b", "ü" * 200, "a b"):
        name = object_name(header(component=component))
        assert name.count("/") == 2
        assert len(name) < 255
        assert not name.split("/")[1].startswith(".")
    assert object_name(header(component="ü" * 200)) != object_name(header(component="ü" * 199 + "a"))


MANIFEST = small_checkpoint(12, {"a": b"1"}, epoch=2)[0]


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert Manifest.decode(MANIFEST.encode(), MANIFEST.name) == MANIFEST
    assert MANIFEST.name == "manifests/00000000000000000012.json"


def test_every_truncated_or_flipped_manifest_is_refused() -> None:
    data = MANIFEST.encode()
    for at in range(len(data)):
        with pytest.raises(CheckpointError, match=MANIFEST.name):
            Manifest.decode(data[:at], MANIFEST.name)
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(CheckpointError, match=MANIFEST.name):
                Manifest.decode(bytes(flipped), MANIFEST.name)


def test_a_manifest_under_another_name_is_refused() -> None:
    with pytest.raises(CheckpointError, match="it is that of checkpoint 12"):
        Manifest.decode(MANIFEST.encode(), manifest_name(13))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"checkpoint_id": -1},
        {"groups": 1 << 40},
        {"components": {"count": [0, 0]}},
        {"components": {}},
        {"components": {"count": [1, 13]}},
        {"objects": [{"name": "x"}]},
        {"other": 1},
    ],
)
def test_a_manifest_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    body = msgspec.json.encode({**msgspec.to_builtins(MANIFEST), **changes}) + b"\n"
    with pytest.raises(CheckpointError, match="malformed"):
        Manifest.decode(body + b"crc32 %08x\n" % crc32(body), MANIFEST.name)


def test_an_object_of_another_topology_or_task_is_not_the_one_that_is_named() -> None:
    manifest, chunks = small_checkpoint(12, {"a": b"1"})
    reader = ObjectReader(BytesSource(manifest.objects[0].name, b"".join(chunks)))
    manifest.check(manifest.objects[0], reader)
    foreign = msgspec.structs.replace(manifest, topology_id="another-1")
    with pytest.raises(CheckpointError, match="is of topology kit-1"):
        foreign.check(foreign.objects[0], reader)
    for changes in ({"index": 1}, {"since": 3}, {"checksum": 1}, {"size": 1}, {"end_group": 4}):
        ref = msgspec.structs.replace(manifest.objects[0], **changes)
        with pytest.raises(CheckpointError, match="is not the one that"):
            manifest.check(ref, reader)
    assert ObjectRef.of(reader, reader.name) == manifest.objects[0]
    assert manifest.components == {"count": ComponentEntry(1, 0)}
    assert decode_key(encode_key(("a", 1))) == ("a", 1)
