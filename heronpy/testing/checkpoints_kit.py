"""What every storage of checkpoints must do, as tests.

A storage of your own passes the kit like this:

    class TestMine(CheckpointStorageKit):
        @pytest.fixture
        def storage(self):
            return MyStorage()

Each test gets a storage in which there is nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from heronpy.checkpoints import (
    CheckpointStorage,
    ComponentEntry,
    Header,
    Kind,
    Manifest,
    ObjectRef,
    ObjectWriter,
    StateEntry,
    newest_intact,
    object_name,
)
from heronpy.errors import CheckpointError, NotFoundError
from heronpy.hashing import key_group

GROUPS = 8


def small_checkpoint(checkpoint_id: int, values: dict[str, bytes], epoch: int = 0) -> tuple[Manifest, list[bytes]]:
    """A checkpoint of one task that has one state by key, and the pieces of its only object."""
    header = Header(
        topology_id="kit-1",
        component="count",
        index=0,
        tasks=1,
        generation=0,
        checkpoint_id=checkpoint_id,
        since=0,
        epoch=epoch,
        groups=GROUPS,
        first_group=0,
        end_group=GROUPS,
        states=(StateEntry("counts", Kind.KEYED, "bytes", 1),),
    )
    writer = ObjectWriter(header)
    for key, value in values.items():
        writer.add(0, key_group(key, GROUPS), (key, None, value, 0))
    writer.finish()
    manifest = Manifest(
        topology_id="kit-1",
        checkpoint_id=checkpoint_id,
        epoch=epoch,
        groups=GROUPS,
        components={"count": ComponentEntry(1, 0)},
        objects=(ObjectRef.of(writer, object_name(header)),),
    )
    return manifest, writer.chunks


def store(storage: CheckpointStorage, manifest: Manifest, chunks: list[bytes]) -> None:
    """Store a checkpoint of one object, in the right order."""
    storage.put(manifest.objects[0].name, chunks)
    assert storage.create(manifest.name, manifest.encode())


class CheckpointStorageKit:
    """Tests for any storage; a subclass has the fixture `storage`. `reopened` gives another one of the same place."""

    large_bytes = 20 * 1024 * 1024
    """More than is sent at once."""

    def test_an_object_is_read_as_it_was_written_in_whole_and_in_parts(self, storage: CheckpointStorage) -> None:
        storage.put("objects/count/1.base", iter([b"abc", b"", b"defg"]))
        assert storage.read("objects/count/1.base") == b"abcdefg"
        assert storage.size("objects/count/1.base") == 7
        assert storage.read("objects/count/1.base", 2) == b"cdefg"
        assert storage.read("objects/count/1.base", 2, 3) == b"cde"
        assert storage.read("objects/count/1.base", 5, 100) == b"fg"
        assert storage.read("objects/count/1.base", 7, 1) == b""
        assert storage.read("objects/count/1.base", 0, 0) == b""

    def test_an_empty_object_and_a_large_one_are_kept(self, storage: CheckpointStorage) -> None:
        storage.put("objects/empty", ())
        assert (storage.size("objects/empty"), storage.read("objects/empty")) == (0, b"")
        piece = bytes(range(256)) * 4096
        storage.put("objects/large", (piece for _ in range(self.large_bytes // len(piece))))
        assert storage.size("objects/large") == self.large_bytes
        assert storage.read("objects/large", self.large_bytes - 300, 300) == piece[-300:]
        assert storage.read("objects/large", len(piece) * 9 + 5, 16) == piece[5:21]

    def test_what_is_not_there_is_not_found(self, storage: CheckpointStorage) -> None:
        with pytest.raises(NotFoundError, match="objects/none"):
            storage.read("objects/none")
        with pytest.raises(NotFoundError, match="objects/none"):
            storage.size("objects/none")
        assert storage.names() == []
        assert storage.names("objects/") == []
        storage.delete(["objects/none"])

    def test_an_object_whose_upload_fails_is_not_there(self, storage: CheckpointStorage) -> None:
        def half() -> Iterator[bytes]:
            yield b"x" * (9 * 1024 * 1024)
            yield b"x" * (9 * 1024 * 1024)
            raise RuntimeError("the task died")

        storage.put("objects/kept", [b"old"])
        for name in ("objects/new", "objects/kept"):
            with pytest.raises(RuntimeError, match="the task died"):
                storage.put(name, half())
        assert storage.names() == ["objects/kept"]
        assert storage.read("objects/kept") == b"old"

    def test_all_of_it_is_removed_and_it_can_be_used_again(self, storage: CheckpointStorage) -> None:
        storage.clear()
        manifest, chunks = small_checkpoint(1, {"a": b"1"})
        store(storage, manifest, chunks)
        storage.clear()
        assert storage.names() == []
        store(storage, manifest, chunks)
        assert newest_intact(storage)[0] == manifest

    def test_an_object_that_is_uploaded_again_is_the_new_one(self, storage: CheckpointStorage) -> None:
        storage.put("objects/a", [b"the first and longer one"])
        storage.put("objects/a", [b"the second"])
        assert storage.read("objects/a") == b"the second"
        assert storage.names() == ["objects/a"]

    def test_a_copy_has_the_same_content(self, storage: CheckpointStorage) -> None:
        storage.put("objects/a", [b"x" * 1000, b"yz"])
        storage.copy("objects/a", "objects/b")
        storage.delete(["objects/a"])
        assert storage.read("objects/b") == b"x" * 1000 + b"yz"
        with pytest.raises(NotFoundError, match="objects/a"):
            storage.copy("objects/a", "objects/c")
        assert storage.names() == ["objects/b"]

    def test_what_was_read_of_an_object_says_which_one_it_was(self, storage: CheckpointStorage) -> None:
        storage.put("objects/a", [b"0123456789"])
        for offset, length in ((2, 3), (8, 100), (0, None), (10, 1), (0, 0)):
            data, found = storage.read_found("objects/a", offset, length)
            assert data == storage.read("objects/a", offset, length)
            assert (found.name, found.size) == ("objects/a", 10)
            assert storage.read_of(found, 4, 2) == b"45"
        with pytest.raises(NotFoundError, match="objects/b"):
            storage.read_found("objects/b", 0, 1)

    def test_names_are_sorted_and_found_by_any_prefix(self, storage: CheckpointStorage) -> None:
        names = [
            "manifests/1.json",
            "manifests/2.json",
            "objects/a%2Fb/1.base",
            "objects/a/1.base",
            "objects/ab/1.base",
        ]
        for name in reversed(names):
            storage.put(name, [name.encode()])
        assert storage.names() == names
        assert storage.names("manifests/") == names[:2]
        assert storage.names("objects/a") == names[2:]
        assert storage.names("objects/a/") == ["objects/a/1.base"]
        assert [(one.name, one.size) for one in storage.listed("objects/a")] == [
            (name, len(name)) for name in names[2:]
        ]
        assert storage.names("objects/none/") == []
        assert storage.names("none/") == []

    def test_deleted_objects_are_gone_and_others_stay(self, storage: CheckpointStorage) -> None:
        for name in "abc":
            storage.put(f"objects/{name}", [name.encode()])
        storage.delete(["objects/a", "objects/none", "objects/c"])
        assert storage.names() == ["objects/b"]
        assert storage.create("objects/a", b"again")

    def test_a_name_that_leads_elsewhere_is_refused(self, storage: CheckpointStorage) -> None:
        for name in ("", "/etc/passwd", "../outside", "objects/../../outside", "objects//a", "objects/.hidden", "a\0b"):
            with pytest.raises(ValueError, match="cannot be the name"):
                storage.put(name, [b"x"])
            with pytest.raises(ValueError, match="cannot be the name"):
                storage.read(name)

    def test_what_is_created_is_not_replaced(self, storage: CheckpointStorage) -> None:
        assert storage.create("manifests/1.json", b"mine")
        assert not storage.create("manifests/1.json", b"theirs")
        assert storage.read("manifests/1.json") == b"mine"
        assert storage.names() == ["manifests/1.json"]

    def test_creating_again_what_is_there_succeeds(self, storage: CheckpointStorage) -> None:
        assert storage.create("manifests/1.json", b"mine")
        assert storage.create("manifests/1.json", b"mine"), "the answer to the first may have been lost"

    def test_of_several_that_create_at_once_one_succeeds(
        self, storage: CheckpointStorage, reopened: Callable[[], CheckpointStorage]
    ) -> None:
        ready = threading.Barrier(6)
        created: list[int] = []

        def create(number: int) -> None:
            with reopened() as mine:
                ready.wait(300)
                if mine.create("manifests/7.json", b"%d" % number * 5000):
                    created.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(created) == 1
        assert storage.read("manifests/7.json") == b"%d" % created[0] * 5000

    def test_what_was_stored_is_there_for_another_process(
        self, storage: CheckpointStorage, reopened: Callable[[], CheckpointStorage]
    ) -> None:
        store(storage, *small_checkpoint(3, {"a": b"1"}))
        with reopened() as other:
            manifest, refused = newest_intact(other)
        assert (manifest.checkpoint_id, refused) == (3, [])

    def test_the_newest_intact_checkpoint_is_found_and_why_newer_ones_are_not(self, storage: CheckpointStorage) -> None:
        for number in range(1, 7):
            store(storage, *small_checkpoint(number, {"a": b"1" * 100, "b": b"2" * 100}))
        ref = small_checkpoint(3, {})[0].objects[0].name
        name = {number: ref.replace(f"{3:020d}", f"{number:020d}") for number in range(1, 7)}
        data = storage.read(name[6])
        storage.put(name[6], [data[: len(data) // 2]])
        storage.delete([name[5]])
        at = storage.read(name[4]).index(b"1" * 100)
        flipped = bytearray(storage.read(name[4]))
        flipped[at] ^= 1
        storage.put(name[4], [bytes(flipped)])
        storage.put(name[3], [storage.read(name[2])])
        manifest, refused = newest_intact(storage, topology_id="kit-1")
        assert manifest.checkpoint_id == 2
        assert [f"{number:020d}" in one.manifest for number, one in zip((6, 5, 4, 3), refused, strict=True)] == [
            True
        ] * 4
        for one, why in zip(refused, ("truncated", "missing", "checksum", "not the one that"), strict=True):
            assert why in one.why
            assert name[6].rpartition("/")[0] in one.why
        assert newest_intact(storage, committed=(1,))[0].checkpoint_id == 1
        assert newest_intact(storage, blocks=False)[0].checkpoint_id == 4, "flipped bits are found where they are read"

    def test_without_an_intact_checkpoint_it_is_refused(self, storage: CheckpointStorage) -> None:
        with pytest.raises(NotFoundError, match="no checkpoint"):
            newest_intact(storage)
        store(storage, *small_checkpoint(1, {"a": b"1"}))
        data = storage.read(storage.names("manifests/")[0])
        storage.put("manifests/00000000000000000002.json", [data])
        storage.put("manifests/00000000000000000003.json", [data[:-4]])
        with pytest.raises(CheckpointError, match=r"0003.*torn.*0002.*checkpoint 1.*0001.*of topology kit-1, not of x"):
            newest_intact(storage, topology_id="x")
        assert newest_intact(storage)[0].checkpoint_id == 1
