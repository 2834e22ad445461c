"""The Checkpoint Manager as a process, over its unix socket, with checkpoints in a directory."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest
from counting_tasks import COMPONENT, Counting, pieces_of
from topology_on_disk import EngineProcess, launch_in

from heronpy.checkpoints import DirectoryStorage, LoggedBatch, check_intact, manifest_name, open_storage, read_manifest
from heronpy.ckptmgr.client import SOCKET_NAME, CheckpointClient, Intact
from heronpy.ckptmgr.parts import PIECE_BYTES
from heronpy.errors import CheckpointError, NotFoundError, ReadFailedError, UnavailableError
from heronpy.proto import checkpoint_pb2
from heronpy.runtime import Launch
from heronpy.security import TOKEN_KEY
from heronpy.testing import eventually

WORDS = ("a", "b", "c", "a", "d", "e", "f", "g")


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path, checkpoints=str(tmp_path / "checkpoints"))
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@pytest.fixture
def process(launch: Launch) -> Iterator[EngineProcess]:
    with EngineProcess("ckptmgr", launch, 0) as process:
        yield process


@pytest.fixture
async def client(launch: Launch) -> AsyncIterator[CheckpointClient]:
    async with CheckpointClient(launch, container=0, process="container_1_count_1") as client:
        yield client


@pytest.mark.usefixtures("process")
async def test_what_was_checkpointed_is_restored_with_its_log(launch: Launch, client: CheckpointClient) -> None:
    counting = Counting(client)
    await counting.restore(0)
    assert counting.logs == [(), ()]
    counting.count(WORDS)
    first = await counting.checkpoint(3)
    counting.count(["a", "z"])
    log = (LoggedBatch(7, b"x" * 3_000_000, 2), LoggedBatch(8, b"y"))
    second = await counting.checkpoint(5, log)
    assert 0 < first.added == first.total < second.total
    assert second.added > 3_000_000

    again = Counting(client)
    await again.restore(5)
    assert again.total == {"a": 3, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "z": 1}
    assert again.logs == [log, ()]
    with open_storage(launch.checkpoints) as storage:
        manifest = read_manifest(storage, manifest_name(5))
        check_intact(storage, manifest)
    assert manifest.duration_ms == 500
    assert manifest.created_ms > 0
    assert list(manifest.components) == [COMPONENT], "a component without state is in no manifest"


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("readable", [True, False])
async def test_objects_on_a_disk_of_this_host_are_read_from_there(
    client: CheckpointClient, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    counting = Counting(client)
    await counting.restore(0)
    counting.count(WORDS)
    await counting.checkpoint(3)
    sent: list[str] = []
    reading = client.read

    async def read(name: str, offset: int, length: int, **options: Any) -> bytes:
        sent.append(name)
        return await reading(name, offset, length, **options)

    def fails(*_: object) -> bytes:
        raise ReadFailedError("it is another user's")

    monkeypatch.setattr(client, "read", read)
    if not readable:
        monkeypatch.setattr(DirectoryStorage, "read", fails)
    again = Counting(client)
    await again.restore(3)
    assert again.total["a"] == 2
    objects = [name for name in sent if name != manifest_name(3)]
    assert bool(objects) is not readable


@pytest.mark.usefixtures("process")
async def test_a_checkpoint_with_batches_for_other_numbers_of_tasks_is_passed_over(client: CheckpointClient) -> None:
    counting = Counting(client)
    await counting.restore(0)
    counting.count(WORDS)
    await counting.checkpoint(4)
    counting.count(WORDS)
    await counting.checkpoint(5, (LoggedBatch(7, b"x"),))
    assert await client.find_intact((4, 5), {COMPONENT: 2}) == Intact(5, (), {})
    found = await client.find_intact((4, 5), {COMPONENT: 3})
    assert (found.checkpoint, found.logged_tasks) == (4, {COMPONENT: 2})
    assert f"it has batches in flight for 2 tasks of '{COMPONENT}', not for 3" in found.refused[0]
    assert (await client.find_intact((5,), {COMPONENT: 3})).checkpoint == 0
    with pytest.raises(CheckpointError, match="were not executed, divided among 2 tasks; now it has 3"):
        await client.restore(5, COMPONENT, 0, 3)


@pytest.mark.usefixtures("process")
async def test_a_large_object_comes_back_in_parts(client: CheckpointClient) -> None:
    data = os.urandom(9_000_000)
    await client.save("objects/count/big", pieces_of([data[:5], b"", data[5:]]))
    assert await client.size("objects/count/big") == len(data)
    assert await client.read("objects/count/big", 0, len(data)) == data
    assert await client.read("objects/count/big", 8_999_990, 100) == data[-10:]


@pytest.mark.usefixtures("process")
async def test_pieces_of_any_size_come_back_in_order(client: CheckpointClient) -> None:
    data = os.urandom(4 * PIECE_BYTES)
    for sizes in ([0], [1], [1] * 50, *([n] for n in (PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES))):
        for more in ([], [5], [PIECE_BYTES - 1, 2]):
            ends = list(accumulate([*sizes, *more]))
            pieces = [data[start:end] for start, end in pairwise([0, *ends])]
            await client.save("objects/count/pieces", pieces_of(pieces))
            assert await client.read("objects/count/pieces", 0, len(data)) == data[: ends[-1]]


@pytest.mark.usefixtures("process")
async def test_a_manifest_is_written_once_and_repeated_calls_succeed(client: CheckpointClient) -> None:
    counting = Counting(client)
    await counting.restore(0)
    counting.count(WORDS)
    reported = await counting.snapshot(3)
    sizes = await asyncio.gather(*(counting.write_manifest(3, reported) for _ in range(4)))
    assert len(set(sizes)) == 1
    assert await counting.write_manifest(3, reported) == sizes[0]
    counting.epoch = 2
    with pytest.raises(CheckpointError, match="there is one of restore epoch 1"):
        await counting.write_manifest(3, reported)


@pytest.mark.usefixtures("process")
async def test_a_checkpoint_that_could_not_be_restored_gets_no_manifest(
    launch: Launch, client: CheckpointClient
) -> None:
    counting = Counting(client)
    await counting.restore(0)
    counting.count(WORDS)
    reported = await counting.snapshot(3)
    with pytest.raises(CheckpointError, match="no base of key group"):
        await counting.write_manifest(3, reported[:1])
    with pytest.raises(CheckpointError, match="no base of key group"):
        await counting.write_manifest(3, reported[1:])
    with pytest.raises(CheckpointError, match="malformed"):
        await counting.write_manifest(3, [*reported, b"{}"])
    counting.committed = 2
    with pytest.raises(CheckpointError, match="checkpoint 2, which is committed, is missing"):
        await counting.write_manifest(3, reported)
    counting.committed = 0
    paths = sorted((Path(launch.checkpoints) / "objects" / COMPONENT).iterdir())
    data = paths[0].read_bytes()
    paths[0].write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match="truncated"):
        await counting.write_manifest(3, reported)
    paths[0].unlink()
    with pytest.raises(CheckpointError, match="missing"):
        await counting.write_manifest(3, reported)
    with pytest.raises(NotFoundError):
        await client.manifest(3)
    paths[0].write_bytes(data)
    assert (await counting.write_manifest(3, reported)).total > 0


@pytest.mark.usefixtures("process")
async def test_a_stream_that_ends_early_stores_nothing(launch: Launch, client: CheckpointClient) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 3_000_000
        raise ArithmeticError("the task has failed")

    with pytest.raises(ArithmeticError):
        await client.save("objects/count/broken", broken())

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000
            await asyncio.sleep(0.01)

    with pytest.raises(UnavailableError):
        await client.save("objects/count/broken", endless(), timeout_s=1)
    saving = asyncio.create_task(client.save("objects/count/broken", endless()))
    await asyncio.sleep(0.3)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    with pytest.raises(NotFoundError):
        await client.size("objects/count/broken")

    def nothing_is_left() -> None:
        assert [path for path in Path(launch.checkpoints).rglob("*") if path.is_file()] == []

    await eventually(nothing_is_left)


@pytest.mark.usefixtures("process")
async def test_names_that_lead_elsewhere_and_strangers_are_refused(launch: Launch, client: CheckpointClient) -> None:
    for name in ("../token", "/etc/passwd", "objects/../../token", "", "x" * 2000):
        with pytest.raises(CheckpointError, match="cannot be the name"):
            await client.save(name, pieces_of([b"x"]))
        with pytest.raises(CheckpointError, match="cannot be the name"):
            await client.read(name, 0, 1, timeout_s=60)
    socket = launch.socket_dir(0)
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    stranger = dataclasses.replace(launch, dir=launch.dir.parent / "other")
    stranger.save()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Launch, "socket_dir", lambda *_: socket)
        async with CheckpointClient(stranger, container=0, process="container_1_count_1") as intruder:
            with pytest.raises(UnavailableError, match="token"):
                await intruder.read("objects/count/x", 0, 1, timeout_s=60)
            with pytest.raises(UnavailableError, match="token"):
                await intruder.save("objects/count/x", pieces_of([b"x"]), timeout_s=60)


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """A topology with a Checkpoint Manager of which strangers get nothing, and which so may serve all their tests."""
    directory = tmp_path_factory.mktemp("besieged")
    launch = launch_in(directory, checkpoints=str(directory / "checkpoints"))
    with EngineProcess("ckptmgr", launch, 0):
        yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@pytest.mark.parametrize("method", checkpoint_pb2.DESCRIPTOR.services_by_name["Ckptmgr"].methods_by_name)
def test_a_stranger_is_refused_by_every_method(besieged: Launch, method: str) -> None:
    launch = besieged
    right = launch.security("container_1_count_1").metadata
    secrets = ["", "0" * 64, launch.token()[:-1]]
    metadata = [[(key, token if key == TOKEN_KEY else value) for key, value in right] for token in secrets]
    metadata.append([(key, value) for key, value in right if key != TOKEN_KEY])
    with grpc.insecure_channel(f"unix:{launch.socket_dir(0) / SOCKET_NAME}") as link:
        call = link.stream_stream(f"/heronpy.Ckptmgr/{method}")
        for each in metadata:
            with pytest.raises(grpc.RpcError) as refused:
                list(call(iter([b""]), metadata=each, timeout=60, wait_for_ready=True))
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_clients_wait_for_a_checkpoint_manager_and_for_its_restart(
    launch: Launch, client: CheckpointClient
) -> None:
    counting = Counting(client)
    starting = asyncio.create_task(client.save("objects/count/x", pieces_of([b"x"])))
    await asyncio.sleep(0.2)
    with EngineProcess("ckptmgr", launch, 0) as process:
        await starting
        await counting.restore(0)
        counting.count(WORDS)
        reported = await counting.snapshot(3)
        process.kill()
        with pytest.raises(UnavailableError):
            await client.size("objects/count/x", timeout_s=0.5)
        writing = asyncio.create_task(counting.write_manifest(3, reported))
        restoring = asyncio.create_task(client.read("objects/count/x", 0, 1))
    with EngineProcess("ckptmgr", launch, 0) as process:
        assert (await writing).total > 0
        assert await restoring == b"x"
        counting.commit(3)
        (launch.socket_dir(0) / SOCKET_NAME).unlink()  # as cleaners of temporary directories do
        async with CheckpointClient(launch, container=0, process="container_1_count_2") as other:
            again = Counting(other)
            await again.restore(3)
        assert again.total == counting.total
        assert process.terminate() == 0


@pytest.mark.usefixtures("process")
async def test_a_damaged_checkpoint_is_refused_by_name(launch: Launch, client: CheckpointClient) -> None:
    counting = Counting(client)
    await counting.restore(0)
    counting.count(WORDS)
    await counting.checkpoint(3)
    path = sorted((Path(launch.checkpoints) / "objects" / COMPONENT).iterdir())[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{path.name}.*checksum"):
        await Counting(client).restore(3)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"incomplete.*{path.name}"):
        await Counting(client).restore(3)
    with pytest.raises(CheckpointError, match="checkpoint 4 is missing"):
        await Counting(client).restore(4)


async def test_another_topology_begins_with_a_checkpoint_by_any_number_of_tasks(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, checkpoints=str(tmp_path / "checkpoints"))
    with EngineProcess("ckptmgr", launch, 0):
        async with CheckpointClient(launch, container=0, process="tmaster") as client:
            first = Counting(client)
            await first.restore(0)
            first.count(WORDS)
            await first.checkpoint(3)
    successor = dataclasses.replace(
        launch, checkpoints=str(tmp_path / "others"), start_from=launch.checkpoints, start_checkpoint=3
    )
    successor.save()
    assert Launch.load(successor.dir) == successor
    with EngineProcess("ckptmgr", successor, 0):
        async with CheckpointClient(successor, container=0, process="tmaster") as client:
            second = Counting(client, tasks=3)
            await second.restore(0)
            for states in second.states:
                states.check_claimed()
            assert second.total == first.total
            await second.checkpoint(1)
            shutil.rmtree(launch.checkpoints)
            await second.restore(1)
            assert second.total == first.total, "the first checkpoint has all of it"
    shutil.rmtree(launch.socket_root(), ignore_errors=True)
