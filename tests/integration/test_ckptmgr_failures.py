"""The Checkpoint Manager when it is killed, its disk is full, or its storage hangs: no committed checkpoint is lost."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from counting_tasks import COMPONENT, Counting, pieces_of
from small_disk import fill, small_disk
from topology_on_disk import EngineProcess, launch_in

from heronpy.checkpoints import (
    CheckpointStorage,
    check_intact,
    manifest_name,
    open_storage,
    read_manifest,
)
from heronpy.ckptmgr import service
from heronpy.ckptmgr.client import CheckpointClient
from heronpy.ckptmgr.service import CheckpointManager
from heronpy.errors import NotFoundError, StateError, UnavailableError
from heronpy.runtime import Launch, running

WORDS = ("a", "b", "c", "a", "d", "e", "f", "g")


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path, checkpoints=str(tmp_path / "checkpoints"))
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@pytest.fixture
async def client(launch: Launch) -> AsyncIterator[CheckpointClient]:
    async with CheckpointClient(launch, container=0, process="container_1_count_1") as client:
        yield client


def files(launch: Launch) -> list[str]:
    """What is stored, whole."""
    with open_storage(launch.checkpoints) as storage:
        return storage.names()


async def test_killed_while_it_stores_an_object_it_has_stored_nothing(launch: Launch, client: CheckpointClient) -> None:
    half, end = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 5_000_000
        half.set()
        await end.wait()
        yield b"y"

    with EngineProcess("ckptmgr", launch, 0) as process:
        saving = asyncio.create_task(client.save("objects/count/x", slow()))
        await half.wait()
        process.kill()
    end.set()
    with pytest.raises(UnavailableError):
        await saving
    with EngineProcess("ckptmgr", launch, 0):
        with pytest.raises(NotFoundError):
            await client.size("objects/count/x")
        await client.save("objects/count/x", pieces_of([b"whole"]))
        assert await client.read("objects/count/x", 0, 100) == b"whole"


class EndedUnderAWrite:
    """A call as gRPC leaves it, about once in five kills, if its peer dies under a write: no status, its own error."""

    def __init__(self) -> None:
        details, nothing = "Internal error from Core", grpc.aio.Metadata()
        self.error = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, nothing, nothing, details=details)

    async def write(self, message: object) -> None:
        raise self.error

    def __await__(self) -> Generator[None, None, None]:
        raise self.error
        yield

    def cancel(self) -> None:
        pass


async def test_a_small_snapshot_is_sent_again_when_its_call_was_ended_under_a_write(
    launch: Launch, client: CheckpointClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, ended = client._stub.Save, []

    def ends_once(**options: Any) -> Any:
        if ended:
            return save(**options)
        ended.append(EndedUnderAWrite())
        return ended[0]

    monkeypatch.setattr(client._stub, "Save", ends_once)
    with EngineProcess("ckptmgr", launch, 0):
        await asyncio.wait_for(client.save("objects/count/x", pieces_of([b"whole"])), 60)
        assert await client.read("objects/count/x", 0, 100) == b"whole"


async def test_a_small_snapshot_is_sent_again_when_it_was_killed(launch: Launch, client: CheckpointClient) -> None:
    half, end = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 1_000_000
        half.set()
        await end.wait()
        yield b"y" * 1_000_000

    with EngineProcess("ckptmgr", launch, 0) as process:
        saving = asyncio.create_task(client.save("objects/count/x", slow()))
        await half.wait()
        process.kill()
        end.set()
    with EngineProcess("ckptmgr", launch, 0):
        await saving
        assert await client.read("objects/count/x", 0, 3_000_000) == b"x" * 1_000_000 + b"y" * 1_000_000


async def test_killed_at_any_moment_of_a_manifest_or_a_merge_it_loses_no_checkpoint(
    launch: Launch, client: CheckpointClient, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("HERON_SEED", time.time_ns() % 1_000_000))
    print(f"HERON_SEED={seed}")
    moments = random.Random(seed)
    counting = Counting(client)
    checkpoint = 0
    process = EngineProcess("ckptmgr", launch, 0)
    try:
        for life in range(6):
            await counting.restore(counting.committed, life + 1)
            for _ in range(4):  # the last one is killed; what is merged then is that of the one before
                checkpoint += 1
                counting.count(WORDS[: moments.randint(1, 8)])
                await counting.checkpoint(checkpoint)
            checkpoint += 1
            counting.count(WORDS)
            reported = await counting.snapshot(checkpoint)
            writing = asyncio.create_task(counting.write_manifest(checkpoint, reported, timeout_s=60))
            await asyncio.sleep(moments.uniform(0, 0.02))
            process.kill()
            process = EngineProcess("ckptmgr", launch, 0)
            assert (await writing).total > 0, "the client asks again"
            counting.commit(checkpoint)
            await client.discard(keep=[checkpoint], before=checkpoint)
            again = Counting(client)
            await again.restore(checkpoint)
            assert again.total == counting.total
        with open_storage(launch.checkpoints) as storage:
            check_intact(storage, read_manifest(storage, manifest_name(checkpoint)))
            assert storage.names("manifests/") == [manifest_name(checkpoint)]
    finally:
        process.kill()


async def test_objects_are_merged_in_the_background_and_old_ones_deleted(
    launch: Launch, client: CheckpointClient
) -> None:
    with EngineProcess("ckptmgr", launch, 0):
        counting = Counting(client)
        await counting.restore(0)
        counting.count([f"{n}" for n in range(200)])
        await client.hold_merges(600)  # tasks restore
        for checkpoint in range(1, 31):
            if checkpoint == 6:
                await client.hold_merges(0)
            counting.count(WORDS)
            await counting.checkpoint(checkpoint)
            await client.discard(keep=[checkpoint - 1, checkpoint], before=checkpoint)
        again = Counting(client)
        await again.restore(30)
        assert again.total == counting.total

    stored = files(launch)
    assert len([name for name in stored if name.startswith("manifests/")]) == 2
    assert len(stored) < 40, "61 without merges"
    assert any("/" + f"{1:020d}" not in name and name.endswith(".base") for name in stored), "no object is merged"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small") as path:
        yield path


def paths(directory: Path, part: str) -> list[Path]:
    return [path for path in directory.rglob("*") if part in path.name]


async def test_a_full_disk_is_an_error_of_the_call_and_room_makes_it_work_again(tmp_path: Path, disk: Path) -> None:
    launch = launch_in(tmp_path, checkpoints=str(disk))
    with EngineProcess("ckptmgr", launch, 0) as process:
        async with CheckpointClient(launch, container=0, process="container_1_count_1") as client:
            counting = Counting(client)
            await counting.restore(0)
            counting.count(WORDS)
            await counting.checkpoint(1)
            with pytest.raises(StateError, match="No space left"):
                await client.save("objects/count/big", pieces_of([b"x" * 1_000_000] * 5))
            assert not paths(disk, "big"), "the torn file takes the room of others"
            counting.count(WORDS)
            reported = await counting.snapshot(2)
            filler = disk / "filler"
            fill(filler)
            with pytest.raises(StateError, match="No space left"):
                await counting.write_manifest(2, reported)
            filler.unlink()
            assert (await counting.write_manifest(2, reported)).total > 0
            counting.commit(2)
            again = Counting(client)
            await again.restore(2)
            assert again.total == counting.total
            assert process.terminate() == 0
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def test_a_refusal_in_the_middle_of_a_save_is_never_taken_for_another_error(tmp_path: Path, disk: Path) -> None:
    launch = launch_in(tmp_path, checkpoints=str(disk))
    with EngineProcess("ckptmgr", launch, 0):
        async with CheckpointClient(launch, container=0, process="container_1_count_1") as client:
            await client.save("objects/count/small", pieces_of([b"x"]))
            fill(disk / "filler")
            for _ in range(60):
                with pytest.raises(StateError, match="No space left"):
                    await client.save("objects/count/big", pieces_of([b"x" * 300_000] * 40))
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def test_calls_that_hang_in_the_storage_hold_up_neither_others_nor_the_end(
    launch: Launch, client: CheckpointClient
) -> None:
    objects = Path(launch.checkpoints) / "objects" / COMPONENT
    objects.mkdir(parents=True)
    os.mkfifo(objects / "hangs")  # to open it waits for somebody who writes
    with EngineProcess("ckptmgr", launch, 0) as process:
        await client.save(f"objects/{COMPONENT}/x", pieces_of([b"x"]))
        reads = [client.read(f"objects/{COMPONENT}/hangs", 0, 10, timeout_s=1) for _ in range(20)]
        assert {type(e) for e in await asyncio.gather(*reads, return_exceptions=True)} == {UnavailableError}
        assert await client.read(f"objects/{COMPONENT}/x", 0, 10) == b"x"
        assert process.terminate() == 0, "and does not wait for a thread that will never end"


class Sticky(CheckpointStorage):
    """A storage that takes nothing while it is stuck, as a network file system does whose server is away."""

    def __init__(self, stuck: Any) -> None:
        self.stuck = stuck

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        self.stuck.wait()
        for _ in chunks:
            self.stuck.wait()

    def create(self, name: str, data: bytes) -> bool:
        self.stuck.wait()
        return True

    def size(self, name: str) -> int:
        self.stuck.wait()
        return 1

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        self.stuck.wait()
        raise NotFoundError("nothing")

    def names(self, prefix: str = "") -> list[str]:
        self.stuck.wait()
        return []

    def delete(self, names: Iterable[str]) -> None:
        self.stuck.wait()


async def test_a_storage_that_hangs_is_an_error_of_each_call_and_answers_again(
    launch: Launch, client: CheckpointClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STORAGE_TIMEOUT_S", "FINISH_TIMEOUT_S", "CATALOG_TIMEOUT_S"):
        monkeypatch.setattr(service, name, 0.3)
    monkeypatch.setattr(service, "CALLS_MAX", 8)
    stuck = threading.Event()
    async with running(CheckpointManager(launch, 0, connect=lambda: Sticky(stuck))):
        big = [b"x" * 1_000_000] * 30
        calls = [
            client.save("objects/count/small", pieces_of([b"x"])),
            client.save("objects/count/big", pieces_of(big)),
            client.size("objects/count/x", timeout_s=2),
            client.discard(keep=[], before=5, timeout_s=2),
            client.write_manifest(checkpoint=1, epoch=1, previous=0, objects=[], tasks={}, timeout_s=2),
        ]
        before_s = time.monotonic()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(e) for e in found} == {UnavailableError}, found
        assert time.monotonic() - before_s < 60
        stuck.set()

        async def answers() -> None:
            assert await client.size("objects/count/x") == 1

        await asyncio.wait_for(answers(), 120)
        await client.save("objects/count/big", pieces_of(big))
