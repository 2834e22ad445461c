"""A stranger on the same machine, without the topology's token, against every process of a running topology."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import pkgutil
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from numbers_topology import Numbers

import heronpy.proto
from heronpy.host import TOPOLOGY_ENV, find_by_environment
from heronpy.proto import metrics_pb2, scheduler_pb2, state_pb2, stmgr_pb2, tmaster_pb2
from heronpy.rpc import channel
from heronpy.security import ID_KEY, SCHEDULER, TOKEN_KEY, Security, container_identity, dns_name_of
from heronpy.statemgr import Kind, container_node, open_statemgr
from heronpy.testing import LocalCluster, TopologyHandle, eventually, eventually_sync
from heronpy.wire import tuple_batch

OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
SECRETS = ["", "0" * 64, "shorter", None]
"""What a stranger may try; None: the right token without its last character."""


@pytest.fixture(scope="module")
def numbers() -> Iterator[TopologyHandle]:
    with LocalCluster({"heron.metrics.export.interval.ms": 500}) as cluster:
        numbers = cluster.submit(Numbers).wait_running()

        def all_listen() -> None:
            ports = tcp_ports(numbers)
            assert len(ports) >= 7, "Topology Master, scheduler service, two Stream Managers, three metrics endpoints"
            assert len(list(numbers.launch.socket_root().rglob("metricsmgr.sock"))) == 3

        eventually_sync(all_listen)
        yield numbers


class Bomb:
    """Whoever unpickles it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.open, (str(self.path), os.O_CREAT | os.O_WRONLY)  # a number, so that the bolt can add it up


def data_frame(numbers: TopologyHandle, bomb: Bomb) -> bytes:
    """A tuple for a bolt of container 1, as a spout of container 2 might send it."""
    instances = numbers.status().instances
    dest = next(i for i in instances if i.component == "sums" and i.container == 1)
    src = next(i for i in instances if i.component == "numbers" and i.container == 2)
    batch = tuple_batch(
        src_task=src.task_id, dest_task=dest.task_id, streams=["default"], count=1, values=pickle.dumps([[bomb]])
    )
    return stmgr_pb2.Frame(batches=[batch]).SerializeToString()


def tokens(numbers: TopologyHandle) -> list[str]:
    return [numbers.launch.token()[:-1] if token is None else token for token in SECRETS]


def socket_of(numbers: TopologyHandle, name: str) -> str:
    return f"unix:{numbers.launch.socket_dir(1) / name}"


def peer_of(numbers: TopologyHandle, stmgr: str) -> str:
    location = next(s.location for s in numbers.status().stmgrs if s.location.id == stmgr)
    return f"{location.host}:{location.port}"


def tmaster_of(numbers: TopologyHandle) -> str:
    with contextlib.closing(open_statemgr(numbers.launch.statemgr)) as state:
        location = state_pb2.TmasterLocation.FromString(state.get(Kind.TMASTERS, numbers.name) or b"")
    return f"{location.host}:{location.port}"


def incarnation_of(numbers: TopologyHandle, container: int) -> int:
    with contextlib.closing(open_statemgr(numbers.launch.statemgr)) as state:
        value = state.get(Kind.CONTAINERS, container_node(numbers.name, container))
    return state_pb2.ContainerRecord.FromString(value or b"").incarnation


def scheduler_of(numbers: TopologyHandle) -> str:
    with contextlib.closing(open_statemgr(numbers.launch.statemgr)) as state:
        return state_pb2.SchedulerLocation.FromString(state.get(Kind.SCHEDULERS, numbers.name) or b"").endpoint


def insider(target: str, security: Security, peer: str) -> grpc.Channel:
    """A channel of somebody who has got hold of a certificate, but not of the token."""
    if target.startswith("unix:"):
        return grpc.insecure_channel(target, options=OPTIONS)
    name = ("grpc.ssl_target_name_override", dns_name_of(security.topology_id, peer))
    return grpc.secure_channel(target, security.channel_credentials(), options=[*OPTIONS, name])


def refused_stream(link: grpc.Channel, method: str, message: bytes, *secrets: tuple[str, str]) -> None:
    """Open a stream, send a message, and be refused."""
    # Not grpc.aio: there a write to a call that was refused already may hide why it was refused.
    with link:
        call: Any = link.stream_stream(method)(iter([message]), metadata=secrets, timeout=120)
        with pytest.raises(grpc.RpcError) as refused:
            list(call)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert refused.value.details() == "wrong or missing topology token"


@pytest.mark.parametrize(
    ("method", "target", "peer", "id"),
    [
        ("/heronpy.Stmgr/Attach", lambda n: socket_of(n, "stmgr.sock"), "", "container_1_numbers_1"),
        ("/heronpy.Stmgr/Peer", lambda n: peer_of(n, "stmgr-1"), "container-1", "stmgr-2"),
        ("/heronpy.Tmaster/Register", tmaster_of, "container-0", "stmgr-1"),
    ],
)
def test_a_stranger_is_refused_by_every_stream_before_anything_is_unpickled(
    numbers: TopologyHandle,
    tmp_path: Path,
    method: str,
    target: Callable[[TopologyHandle], str],
    peer: str,
    id: str,
) -> None:
    bomb = Bomb(tmp_path / "unpickled")
    frame = data_frame(numbers, bomb)
    security = numbers.launch.security(id)
    for secrets in ([(TOKEN_KEY, token)] for token in tokens(numbers)):
        refused_stream(insider(target(numbers), security, peer), method, frame, *secrets, (ID_KEY, id))
    refused_stream(insider(target(numbers), security, peer), method, frame, (ID_KEY, id))
    numbers.wait_running()  # and nobody has lost a connection or a place
    assert not bomb.path.exists()


async def test_the_same_bytes_with_the_token_are_unpickled(numbers: TopologyHandle, tmp_path: Path) -> None:
    """Or else the test above would prove nothing."""
    bomb = Bomb(tmp_path / "unpickled")
    security = replace(numbers.launch.security("stmgr-2"), incarnation=incarnation_of(numbers, 2))
    async with channel(peer_of(numbers, "stmgr-1"), security, container_identity(1)) as link:
        call: Any = link.stream_stream("/heronpy.Stmgr/Peer")(metadata=security.metadata)
        await call.write(data_frame(numbers, bomb))
        await eventually(lambda: _exists(bomb.path))
        call.cancel()


@pytest.mark.parametrize(
    ("method", "target", "request_"),
    [
        ("/heronpy.Tmaster/Enroll", tmaster_of, tmaster_pb2.EnrollRequest(container=1)),
        ("/heronpy.Tmaster/Activate", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/Deactivate", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/GetStatus", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/GetHealth", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/GetPhysicalPlan", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/GetMetrics", tmaster_of, tmaster_pb2.MetricsRequest()),
        ("/heronpy.Tmaster/GetExceptions", tmaster_of, tmaster_pb2.ExceptionsRequest()),
        ("/heronpy.Tmaster/GetExceptionSummary", tmaster_of, tmaster_pb2.ExceptionsRequest()),
        ("/heronpy.Tmaster/SetLogLevel", tmaster_of, tmaster_pb2.LogLevelRequest(target="tmaster", level="DEBUG")),
        ("/heronpy.Tmaster/GetLogLevels", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/PublishMetrics", tmaster_of, metrics_pb2.MetricsReports()),
        ("/heronpy.Tmaster/Update", tmaster_of, tmaster_pb2.UpdateRequest(timeout_s=1)),
        ("/heronpy.Tmaster/TakeCheckpoint", tmaster_of, tmaster_pb2.CheckpointRequest(timeout_ms=1000)),
        (
            "/heronpy.Metricsmgr/Publish",
            lambda n: socket_of(n, "metricsmgr.sock"),
            metrics_pb2.MetricsReport(source="container_1_numbers_1"),
        ),
        ("/heronpy.Scheduler/Kill", scheduler_of, scheduler_pb2.SchedulerRequest()),
        ("/heronpy.Scheduler/Restart", scheduler_of, scheduler_pb2.RestartRequest(container=-1)),
        ("/heronpy.Scheduler/JobLinks", scheduler_of, scheduler_pb2.SchedulerRequest()),
    ],
)
async def test_a_stranger_is_refused_by_every_call(
    numbers: TopologyHandle, method: str, target: Callable[[TopologyHandle], str], request_: Any
) -> None:
    before = numbers.wait_running().processes()
    security, peer = numbers.launch.security("heron"), SCHEDULER if "Scheduler" in method else container_identity(0)
    async with channel(target(numbers), security, peer) as link:
        call: Any = link.unary_unary(method, request_serializer=type(request_).SerializeToString)
        for secrets in ([(TOKEN_KEY, token)] for token in tokens(numbers)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(request_, metadata=secrets, timeout=120, wait_for_ready=True)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert refused.value.details() == "wrong or missing topology token"
    assert numbers.processes() == before
    assert numbers.status().state == "RUNNING"


def test_every_method_of_every_service_is_tried_above() -> None:
    tried = {
        mark.args[1][n][0].split(".")[1]
        for test in (
            test_a_stranger_is_refused_by_every_stream_before_anything_is_unpickled,
            test_a_stranger_is_refused_by_every_call,
        )
        for mark in test.pytestmark  # type: ignore[attr-defined]  # the parameters above
        for n in range(len(mark.args[1]))
    }
    names = {module.name for module in pkgutil.iter_modules(heronpy.proto.__path__) if module.name.endswith("_pb2")}
    services = [
        service
        for name in names - {"checkpoint_pb2", "shell_pb2"}  # of others: test_ckptmgr.py, test_shell_service.py
        for service in importlib.import_module(f"heronpy.proto.{name}").DESCRIPTOR.services_by_name.values()
    ]
    assert tried == {f"{service.name}/{method.name}" for service in services for method in service.methods}


async def test_a_stranger_without_a_certificate_does_not_get_as_far_as_a_call(numbers: TopologyHandle) -> None:
    token = numbers.launch.token()  # not even with the token
    ca = (numbers.launch.tls_dir / "ca.pem").read_bytes()
    security = numbers.launch.security("heron")
    for target, peer, method in (
        (tmaster_of(numbers), container_identity(0), "/heronpy.Tmaster/GetStatus"),
        (scheduler_of(numbers), SCHEDULER, "/heronpy.Scheduler/JobLinks"),
        (peer_of(numbers, "stmgr-1"), container_identity(1), "/heronpy.Stmgr/Peer"),
    ):
        name = ("grpc.ssl_target_name_override", dns_name_of(security.topology_id, peer))
        for link in (
            grpc.aio.insecure_channel(target, options=OPTIONS),
            grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(ca), options=[*OPTIONS, name]),
        ):
            async with link:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await link.unary_unary(method)(b"", metadata=((TOKEN_KEY, token), (ID_KEY, "heron")), timeout=120)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


PROBES = {
    "nothing": b"",
    "HTTP/1": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "junk": bytes(range(256)) * 16,
}
ALERT = 21
"""The type of a TLS record."""


@pytest.mark.parametrize("probe", PROBES)
def test_a_port_scanner_hears_nothing_but_tls_alerts(numbers: TopologyHandle, probe: str) -> None:
    ports = tcp_ports(numbers)
    for port in ports:
        with socket.create_connection(("127.0.0.1", port), timeout=120) as s:
            answer = b""
            with contextlib.suppress(ConnectionError):
                s.sendall(PROBES[probe])
                s.shutdown(socket.SHUT_WR)
                while data := s.recv(4096):
                    answer += data
        assert answer[:1] in (b"", bytes([ALERT])), (port, answer[:100])
        assert len(answer) < 16, "one alert"


def test_a_tls_client_without_a_certificate_hears_nothing_of_any_protocol(numbers: TopologyHandle) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    for port in tcp_ports(numbers):
        heard = b""
        with (
            contextlib.suppress(ssl.SSLError, ConnectionError),
            socket.create_connection(("127.0.0.1", port), timeout=120) as plain,
            context.wrap_socket(plain) as s,
        ):
            s.sendall(PROBES["HTTP/1"])
            while data := s.recv(4096):
                heard += data
        assert heard == b"", port


def tcp_ports(numbers: TopologyHandle) -> list[int]:
    return [address.port for address in listening(numbers)]


def listening(numbers: TopologyHandle) -> list[Any]:
    """The addresses of its processes."""
    return [
        connection.laddr
        for process, _ in find_by_environment({TOPOLOGY_ENV: numbers.launch.topology_id})
        for connection in psutil.Process(process.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]


def test_the_keys_are_in_no_environment_command_line_log_or_file_of_others(numbers: TopologyHandle) -> None:
    keys = {path: path.read_bytes().splitlines()[1] for path in numbers.launch.tls_dir.rglob("*key*.pem")}
    keys |= {path: path.read_bytes().splitlines()[1] for path in numbers.launch.tls_dir.glob("c*-*.pem")}
    assert len(keys) >= 4
    for path, text in contents(numbers.launch.dir):
        assert [p for p, key in keys.items() if key in text] == ([path] if path in keys else [])
        if path in keys:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for process, _ in find_by_environment({TOPOLOGY_ENV: numbers.launch.topology_id}):
        for what in ("cmdline", "environ"):
            shown = Path(f"/proc/{process.pid}/{what}").read_bytes()
            assert not any(key in shown for key in keys.values())


def test_sockets_are_in_directories_of_their_owner_only(numbers: TopologyHandle) -> None:
    root = numbers.launch.socket_root()
    found = sorted(path for path in root.rglob("*") if path.is_socket())
    assert {path.name for path in found} == {"stmgr.sock", "metricsmgr.sock"}
    for directory in {parent for path in found for parent in path.parents if parent.is_relative_to(root.parent)}:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700, directory
        assert directory.stat().st_uid == os.getuid()


def test_only_its_owner_can_read_the_token_and_only_from_its_file(numbers: TopologyHandle) -> None:
    token = numbers.launch.token().encode()
    assert len(token) >= 32
    assert stat.S_IMODE((numbers.launch.dir / "token").stat().st_mode) == 0o600
    home = next(parent for parent in numbers.launch.dir.parents if parent.name == "topologies").parent
    files = contents(home)
    assert [path.name for path, content in files if token in content] == ["token"]
    assert any(path.suffix == ".log" for path, _ in files)
    processes = list(find_by_environment({TOPOLOGY_ENV: numbers.launch.topology_id}))
    assert len(processes) >= len(numbers.processes()) > 10
    for process, _ in processes:
        for what in ("cmdline", "environ"):
            assert token not in Path(f"/proc/{process.pid}/{what}").read_bytes()


def test_processes_listen_to_this_machine_only(numbers: TopologyHandle) -> None:
    found = [address.ip for address in listening(numbers)]
    assert len(found) >= 5
    assert {ip.removeprefix("::ffff:") for ip in found} == {"127.0.0.1"}


def contents(directory: Path) -> list[tuple[Path, bytes]]:
    """Of all files, but for those that a running topology replaces just now."""
    found = []
    for path in (path for path in directory.rglob("*") if path.is_file()):
        with contextlib.suppress(FileNotFoundError):
            found.append((path, path.read_bytes()))
    return found


def _exists(path: Path) -> None:
    assert path.exists()
