"""Sockets that are removed under running servers, as cleaners of temporary directories do."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from topology_on_disk import remove

from heronpy.rpc import UnixServer
from heronpy.testing import eventually

ECHO = "/test.Echo/Echo"


def echo_server(bind: str) -> grpc.aio.Server:
    async def echo(_requests: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(message)

    made = grpc.aio.server()
    made.add_insecure_port(bind)
    handler = grpc.stream_stream_rpc_method_handler(echo)
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Echo": handler}),))
    return made


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("s")
    yield made
    shutil.rmtree(made, ignore_errors=True)


def server_in(directory: Path) -> UnixServer:
    def path() -> Path:
        directory.mkdir(exist_ok=True)
        return directory / "echo.sock"

    return UnixServer(path, echo_server)


async def answers(call: Any, word: bytes = b"word") -> None:
    async with asyncio.timeout(120):
        await call.write(word)
        assert await call.read() == word


async def test_a_socket_that_was_removed_is_bound_again_and_connections_outlive_it(directory: Path) -> None:
    server = server_in(directory)
    await server.start()
    watching = asyncio.create_task(server.run())
    async with grpc.aio.insecure_channel(f"unix:{directory / 'echo.sock'}") as before:
        old = before.stream_stream(ECHO)(wait_for_ready=True)
        await answers(old)
        for _ in range(2):
            remove(directory)
            await eventually(lambda: _exists(directory / "echo.sock"))
            await answers(old)
            async with grpc.aio.insecure_channel(f"unix:{directory / 'echo.sock'}") as after:
                new = after.stream_stream(ECHO)(wait_for_ready=True)
                await answers(new)
                new.cancel()
        old.cancel()
    watching.cancel()
    await server.stop()
    assert os.listdir(directory) == []


async def test_a_server_that_stops_leaves_the_socket_of_a_newer_incarnation_alone(directory: Path) -> None:
    older, newer = server_in(directory), server_in(directory)
    await older.start()
    await newer.start()
    await older.stop()
    async with grpc.aio.insecure_channel(f"unix:{directory / 'echo.sock'}") as link:
        call = link.stream_stream(ECHO)(wait_for_ready=True)
        await answers(call)
        call.cancel()
    await newer.stop()
    assert os.listdir(directory) == []


def _exists(path: Path) -> None:
    assert path.exists()
