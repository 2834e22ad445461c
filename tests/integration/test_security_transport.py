"""The links between processes: a process talks only to those who have proved who they are, and reads nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from topology_on_disk import EngineProcess, launch_in, submit

from heronpy.plan import PhysicalPlan
from heronpy.proto import plan_pb2, state_pb2, stmgr_pb2, tmaster_pb2
from heronpy.rpc import channel, listen
from heronpy.runtime import Launch
from heronpy.security import Security, authority, container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually

MIB = 1 << 20
SAY = "/Echo/Say"


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return launch_in(tmp_path)


@pytest.fixture
def state(launch: Launch) -> Iterator[StateManager]:
    with contextlib.closing(open_statemgr(launch.statemgr)) as sm:
        yield sm


class Echo:
    """A server that answers every message with itself, and remembers who called."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, Any]] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self, security: Security, bind: str = "127.0.0.1:0", **options: Any) -> AsyncIterator[Echo]:
        listener = listen(bind, "127.0.0.1", security, **options)
        self.add_to(listener.server)
        await listener.server.start()
        self.port = listener.port
        try:
            yield self
        finally:
            await listener.server.stop(0)

    def add_to(self, server: grpc.aio.Server) -> None:
        async def say(message: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            self.metadata.append(dict(context.invocation_metadata() or ()))
            return message

        method = {"Say": grpc.unary_unary_rpc_method_handler(say)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", method),))


async def say(port: int, security: Security, peer: str, message: bytes = b"hello", **arguments: Any) -> bytes:
    async with channel(f"127.0.0.1:{port}", security, peer) as link:
        metadata = arguments.pop("metadata", security.metadata)
        answer: bytes = await link.unary_unary(SAY)(message, metadata=metadata, timeout=120, **arguments)
        return answer


async def test_processes_of_one_topology_talk(launch: Launch) -> None:
    async with Echo().serving(launch.security("stmgr-1")) as echo:
        assert await say(echo.port, launch.security("stmgr-2"), container_identity(1)) == b"hello"
        assert await say(echo.port, launch.security("heron"), container_identity(1)) == b"hello"
    assert [m["heron-id"] for m in echo.metadata] == ["stmgr-2", "heron"]


async def test_nothing_is_sent_to_a_process_of_the_topology_that_is_not_the_one_dialed(launch: Launch) -> None:
    async with Echo().serving(launch.security("stmgr-3")) as echo:
        with pytest.raises(grpc.aio.AioRpcError, match="Hostname Verification"):
            await say(echo.port, launch.security("stmgr-1"), container_identity(2))
        assert await say(echo.port, launch.security("stmgr-1"), container_identity(3)) == b"hello"
    assert len(echo.metadata) == 1, "the first call never reached it"


async def test_nothing_is_sent_to_a_server_with_certificates_of_its_own(launch: Launch, tmp_path: Path) -> None:
    authority.create(tmp_path / "tls", launch.topology_id, range(3), days=1)
    impostor = dataclasses.replace(launch.security("stmgr-2"), tls=tmp_path / "tls")
    async with Echo().serving(impostor) as echo:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await say(echo.port, launch.security("stmgr-1"), container_identity(2))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert echo.metadata == []


async def test_a_caller_is_who_its_certificate_says_and_not_who_it_says(launch: Launch) -> None:
    async with Echo().serving(launch.security("stmgr-1")) as echo:
        another = launch.security("stmgr-2").metadata
        with pytest.raises(grpc.aio.AioRpcError, match="the certificate is not that of stmgr-2") as refused:
            await say(echo.port, launch.security("stmgr-3"), container_identity(1), metadata=another)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        nobody = another[:1]
        with pytest.raises(grpc.aio.AioRpcError, match="the certificate is not that of an unnamed process"):
            await say(echo.port, launch.security("stmgr-3"), container_identity(1), metadata=nobody)
    assert echo.metadata == []


async def test_who_is_in_an_older_incarnation_of_its_container_is_refused(launch: Launch) -> None:
    async with Echo().serving(launch.security("stmgr-1"), newest={2: 7, 3: 0}.__getitem__) as echo:
        for incarnation, process in ((7, "stmgr-2"), (8, "container_2_word_1"), (0, "stmgr-3"), (0, "heron")):
            security = dataclasses.replace(launch.security(process), incarnation=incarnation)
            assert await say(echo.port, security, container_identity(1)) == b"hello"
        old = dataclasses.replace(launch.security("stmgr-2"), incarnation=6)
        without, damaged = old.metadata[:2], (*old.metadata[:2], ("heron-incarnation", "9" * 5000))
        for metadata in (old.metadata, without, damaged):
            with pytest.raises(grpc.aio.AioRpcError, match="stmgr-2: container 2 has a newer incarnation") as refused:
                await say(echo.port, old, container_identity(1), metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert len(echo.metadata) == 4


async def test_a_server_answers_only_the_identities_that_it_is_for(launch: Launch) -> None:
    callers = {container_identity(2)}.__contains__
    async with Echo().serving(launch.security("stmgr-1"), callers=callers) as echo:
        with pytest.raises(grpc.aio.AioRpcError, match="stmgr-3 may not call this") as refused:
            await say(echo.port, launch.security("stmgr-3"), container_identity(1))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert await say(echo.port, launch.security("stmgr-2"), container_identity(1)) == b"hello"


async def test_a_certificate_alone_is_not_enough(launch: Launch) -> None:
    stranger = dataclasses.replace(launch.security("stmgr-2"), token="guessed")
    async with Echo().serving(launch.security("stmgr-1")) as echo:
        with pytest.raises(grpc.aio.AioRpcError, match="wrong or missing topology token"):
            await say(echo.port, stranger, container_identity(1))


async def test_tls_older_than_1_3_gets_no_answer(launch: Launch) -> None:
    async with Echo().serving(launch.security("stmgr-1")) as echo:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(launch.tls_dir / "container-2.pem")
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port, ssl=context)
        writer.write(_http2_call(SAY, dict(launch.security("stmgr-2").metadata)))
        async with asyncio.timeout(120):
            answer = b""
            while b"the certificate is not that of" not in answer:
                data = await reader.read(65536)
                assert data, answer
                answer += data
        writer.close()
    assert echo.metadata == []


async def test_renewed_certificates_are_used_by_the_next_connection(launch: Launch) -> None:
    mine = launch.security("stmgr-2")
    async with (
        Echo().serving(launch.security("stmgr-1")) as echo,
        channel(f"127.0.0.1:{echo.port}", mine, container_identity(1)) as link,
    ):
        old = link.unary_unary(SAY)
        await old(b"before", metadata=mine.metadata, timeout=120)
        before = await asyncio.to_thread(_served_certificate, launch, echo.port)
        authority.renew(launch.tls_dir, launch.topology_id, days=30)
        assert await say(echo.port, mine, container_identity(1)) == b"hello"
        assert await asyncio.to_thread(_served_certificate, launch, echo.port) != before
        assert await old(b"still here", metadata=mine.metadata, timeout=120) == b"still here"


async def test_whoever_takes_over_the_port_of_a_dead_stmgr_is_not_sent_the_token(
    launch: Launch, state: StateManager
) -> None:
    """Its peer keeps dialing the port, and what it sends there is an offer to prove who one is, nothing else."""
    heard = await _taken_over(launch, state)
    assert all(data[:1] == b"\x16" for data in heard), "a TLS handshake"
    assert all(launch.token().encode() not in data for data in heard)


async def test_without_tls_the_same_impostor_gets_the_token(tmp_path: Path) -> None:
    """Or else the test above would prove nothing."""
    launch = launch_in(tmp_path, {"heron.security.tls": False})
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        heard = await _taken_over(launch, state, until=launch.token().encode())
    assert any(launch.token().encode() in data for data in heard)


async def test_what_an_impostor_sends_to_a_stmgr_is_not_read(launch: Launch, state: StateManager) -> None:
    """It has the port of stmgr-2, and certificates of its own; stmgr-1 dials it, and it sends a frame."""
    frame = stmgr_pb2.Frame(start_backpressure=[stmgr_pb2.StartBackpressure(stmgr="stmgr-2", culprit="x")])
    called = 0

    async def peer(_requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        nonlocal called
        called += 1
        await context.write(frame.SerializeToString())
        await asyncio.sleep(60)

    async with _two_stmgrs(launch, state) as second:
        port = (await _locations(launch, state))["stmgr-2"]
        await asyncio.to_thread(second.kill)
        server = grpc.aio.server()
        method = {"Peer": grpc.stream_stream_rpc_method_handler(peer)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("heronpy.Stmgr", method),))
        elsewhere = launch.dir.parent / "elsewhere"
        authority.create(elsewhere, launch.topology_id, range(3), days=1)
        own = (elsewhere / "container-2.pem").read_bytes()
        server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([(own, own)]))
        await server.start()
        # A dialer of ours that tries as often as stmgr-1 does has failed, so has stmgr-1 by then.
        async with channel(f"127.0.0.1:{port}", launch.security("stmgr-1"), container_identity(2)) as link:
            for _ in range(5):
                with pytest.raises(grpc.aio.AioRpcError):
                    await link.stream_stream("/heronpy.Stmgr/Peer")(metadata=(), timeout=2).read()
        await server.stop(0)
    assert called == 0


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_large_messages_without_the_token_are_not_taken_into_memory(
    tmp_path: Path, compression: grpc.Compression
) -> None:
    """Without TLS; with it, a stranger does not get as far as a call."""
    launch = launch_in(tmp_path, {"heron.security.tls": False})
    with contextlib.closing(open_statemgr(launch.statemgr)) as state, EngineProcess("tmaster", launch, 0) as tmaster:
        submit(state, 1)
        location = await eventually(lambda: _tmaster(launch, state))
        process = psutil.Process(tmaster.pid)
        before = process.memory_info().rss
        message, peak = bytes(60 * MIB), before

        async def send(link: grpc.aio.Channel) -> grpc.StatusCode:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await link.unary_unary("/heronpy.Tmaster/PublishMetrics")(
                    message, metadata=(("heron-token", "guessed"),), compression=compression, timeout=600
                )
            return refused.value.code()

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, process.memory_info().rss)
                await asyncio.sleep(0.01)

        watching = asyncio.create_task(watch())
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        async with contextlib.AsyncExitStack() as stack:
            target = f"{location.host}:{location.port}"
            links = [
                await stack.enter_async_context(grpc.aio.insecure_channel(target, options=options)) for _ in range(12)
            ]
            codes = await asyncio.gather(*map(send, links))
        watching.cancel()
    assert set(codes) <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED}
    assert peak - before < 60 * MIB, f"{before >> 20} MiB before, {peak >> 20} at most"


async def test_a_compressed_message_is_refused_even_with_the_token(launch: Launch) -> None:
    async with Echo().serving(launch.security("stmgr-1")) as echo:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await say(
                echo.port,
                launch.security("stmgr-2"),
                container_identity(1),
                bytes(8 * MIB),
                compression=grpc.Compression.Gzip,
            )
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert echo.metadata == []


async def test_a_message_beyond_the_limit_of_its_server_is_refused(launch: Launch) -> None:
    async with Echo().serving(launch.security("stmgr-1"), message_bytes_max=MIB) as echo:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await say(echo.port, launch.security("stmgr-2"), container_identity(1), bytes(2 * MIB))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_connections_beyond_the_limit_are_closed_and_room_comes_back(launch: Launch) -> None:
    async with Echo().serving(launch.security("stmgr-1"), connections_max=5) as echo:
        opened = [await asyncio.open_connection("127.0.0.1", echo.port) for _ in range(12)]

        ends = [asyncio.create_task(reader.read(1)) for reader, _ in opened]

        def closed() -> None:
            assert sum(end.done() and end.exception() is None and end.result() == b"" for end in ends) >= 7

        await eventually(closed)
        for _, writer in opened:
            writer.close()

        async def answers() -> None:
            try:
                await say(echo.port, launch.security("stmgr-2"), container_identity(1))
            except grpc.aio.AioRpcError as e:
                raise AssertionError(e.code()) from None

        await eventually(answers)


async def test_a_stmgr_cannot_register_as_another(launch: Launch, state: StateManager) -> None:
    submit(state, 1, 2)
    with EngineProcess("tmaster", launch, 0):
        location = await eventually(lambda: _tmaster(launch, state))
        target, security = f"{location.host}:{location.port}", launch.security("stmgr-1")
        async with channel(target, security, container_identity(0)) as link:
            call: Any = link.stream_stream(
                "/heronpy.Tmaster/Register", request_serializer=tmaster_pb2.StmgrMessage.SerializeToString
            )(metadata=security.metadata, timeout=120)
            hello = tmaster_pb2.StmgrHello(location=plan_pb2.StmgrLocation(id="stmgr-2", container=2))
            await call.write(tmaster_pb2.StmgrMessage(hello=hello))
            assert await call.code() is grpc.StatusCode.PERMISSION_DENIED


# helpers


def _tmaster(launch: Launch, state: StateManager) -> state_pb2.TmasterLocation:
    value = state.get(Kind.TMASTERS, launch.topology)
    assert value is not None
    return state_pb2.TmasterLocation.FromString(value)


@contextlib.asynccontextmanager
async def _two_stmgrs(launch: Launch, state: StateManager) -> AsyncIterator[EngineProcess]:
    """Two Stream Managers that know each other's address; the second."""
    await asyncio.to_thread(submit, state, 1, 2)
    with (
        EngineProcess("tmaster", launch, 0),
        EngineProcess("stmgr", launch, 1),
        EngineProcess("stmgr", launch, 2) as second,
    ):
        await eventually(lambda: _both_planned(launch, state))
        yield second


def _both_planned(launch: Launch, state: StateManager) -> None:
    value = state.get(Kind.PPLANS, launch.topology)
    assert value is not None
    plan = PhysicalPlan.from_proto(plan_pb2.PhysicalPlan.FromString(value))
    assert {s.id for s in plan.stmgrs if s.port} == {"stmgr-1", "stmgr-2"}


async def _locations(launch: Launch, state: StateManager) -> dict[str, int]:
    value = await asyncio.to_thread(state.get, Kind.PPLANS, launch.topology)
    plan = PhysicalPlan.from_proto(plan_pb2.PhysicalPlan.FromString(value or b""))
    return {s.id: s.port for s in plan.stmgrs}


async def _taken_over(launch: Launch, state: StateManager, *, until: bytes = b"") -> list[bytes]:
    """End stmgr-2, listen at its port, and return what stmgr-1 sends there in three calls.

    With `until`, answer as an HTTP/2 server does, so that a client that trusts it goes on, until it has sent that.
    """
    heard: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if until:
            writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        data = b""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(1):
                while chunk := await reader.read(65536):
                    data += chunk
        heard.append(data)
        writer.close()

    async with _two_stmgrs(launch, state) as second:
        port = (await _locations(launch, state))["stmgr-2"]
        await asyncio.to_thread(second.kill)
        server = await asyncio.start_server(accept, "127.0.0.1", port)

        def called_thrice() -> None:
            assert len(heard) >= 3
            assert any(until in data for data in heard)

        await eventually(called_thrice)
        server.close()
    return heard


def _served_certificate(launch: Launch, port: int) -> bytes | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(launch.tls_dir / "ca.pem")
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), timeout=120) as raw, context.wrap_socket(raw) as s:
        return s.getpeercert(binary_form=True)


def _http2_call(path: str, metadata: dict[str, str]) -> bytes:
    """The start of a call over HTTP/2: preface, settings, headers without compression, an empty message."""

    def literal(name: str, value: str) -> bytes:
        return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    headers = {
        ":method": "POST",
        ":scheme": "https",
        ":path": path,
        ":authority": "x",
        "te": "trailers",
        "content-type": "application/grpc",
        **metadata,
    }
    block = b"".join(literal(name, value) for name, value in headers.items())
    frames = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    frames += len(block).to_bytes(3, "big") + b"\x01\x04" + (1).to_bytes(4, "big") + block
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames
