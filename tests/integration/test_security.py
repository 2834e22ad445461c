"""A stranger on the same machine, without the topology's token, against every process of a running topology."""

from __future__ import annotations

import contextlib
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from numbers_topology import Numbers

from heronpy.executor import TOPOLOGY_ENV, find_by_environment
from heronpy.proto import metrics_pb2, plan_pb2, scheduler_pb2, state_pb2, stmgr_pb2, tmaster_pb2
from heronpy.runtime import ID_KEY, TOKEN_KEY, channel, metadata
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster, TopologyHandle, eventually
from heronpy.wire import tuple_batch

OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
SECRETS = ["", "0" * 64, "shorter", None]
"""What a stranger may try; None: the right token without its last character."""


@pytest.fixture(scope="module")
def numbers() -> Iterator[TopologyHandle]:
    with LocalCluster({"heron.metrics.export.interval.ms": 200}) as cluster:
        yield cluster.submit(Numbers).wait_running(60)


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
        src_task=src.task_id, dest_task=dest.task_id, stream="default", count=1, values=pickle.dumps([[bomb]])
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


def scheduler_of(numbers: TopologyHandle) -> str:
    with contextlib.closing(open_statemgr(numbers.launch.statemgr)) as state:
        return state_pb2.SchedulerLocation.FromString(state.get(Kind.SCHEDULERS, numbers.name) or b"").http_endpoint


def refused_stream(target: str, method: str, message: bytes, *secrets: tuple[str, str]) -> None:
    """Open a stream, send a message, and be refused."""
    # Not grpc.aio: there a write to a call that was refused already may hide why it was refused.
    with grpc.insecure_channel(target, options=OPTIONS) as link:
        call: Any = link.stream_stream(method)(iter([message]), metadata=secrets, timeout=20)
        with pytest.raises(grpc.RpcError) as refused:
            list(call)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert refused.value.details() == "wrong or missing topology token"


@pytest.mark.parametrize(
    ("method", "target", "id"),
    [
        ("/heronpy.Stmgr/Attach", lambda n: socket_of(n, "stmgr.sock"), "container_1_numbers_1"),
        ("/heronpy.Stmgr/Peer", lambda n: peer_of(n, "stmgr-1"), "stmgr-2"),
        ("/heronpy.Tmaster/Register", tmaster_of, "stmgr-1"),
    ],
)
def test_a_stranger_is_refused_by_every_stream_before_anything_is_unpickled(
    numbers: TopologyHandle, tmp_path: Path, method: str, target: Callable[[TopologyHandle], str], id: str
) -> None:
    bomb = Bomb(tmp_path / "unpickled")
    frame = data_frame(numbers, bomb)
    for token in tokens(numbers):
        refused_stream(target(numbers), method, frame, (TOKEN_KEY, token), (ID_KEY, id))
    refused_stream(target(numbers), method, frame, (ID_KEY, id))
    numbers.wait_running(30)  # and nobody has lost a connection or a place
    assert not bomb.path.exists()


async def test_the_same_bytes_with_the_token_are_unpickled(numbers: TopologyHandle, tmp_path: Path) -> None:
    """Or else the test above would prove nothing."""
    bomb = Bomb(tmp_path / "unpickled")
    async with channel(peer_of(numbers, "stmgr-1")) as link:
        call: Any = link.stream_stream("/heronpy.Stmgr/Peer")(metadata=metadata(numbers.launch.token(), "stmgr-2"))
        await call.write(data_frame(numbers, bomb))
        await eventually(lambda: _exists(bomb.path), within_s=20)
        call.cancel()


@pytest.mark.parametrize(
    ("method", "target", "request_"),
    [
        ("/heronpy.Tmaster/Activate", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/Deactivate", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/GetStatus", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/GetPhysicalPlan", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/GetMetrics", tmaster_of, tmaster_pb2.MetricsRequest()),
        ("/heronpy.Tmaster/GetExceptions", tmaster_of, tmaster_pb2.ExceptionsRequest()),
        ("/heronpy.Tmaster/GetExceptionSummary", tmaster_of, tmaster_pb2.ExceptionsRequest()),
        ("/heronpy.Tmaster/SetLogLevel", tmaster_of, tmaster_pb2.LogLevelRequest(target="tmaster", level="DEBUG")),
        ("/heronpy.Tmaster/GetLogLevels", tmaster_of, tmaster_pb2.TopologyRequest()),
        ("/heronpy.Tmaster/PublishMetrics", tmaster_of, metrics_pb2.MetricsReports()),
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
    before = numbers.wait_running(30).processes()
    async with channel(target(numbers)) as link:
        call: Any = link.unary_unary(method, request_serializer=type(request_).SerializeToString)
        for secrets in ([(TOKEN_KEY, token)] for token in tokens(numbers)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(request_, metadata=secrets, timeout=10, wait_for_ready=True)
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
    services = [
        service
        for module in (metrics_pb2, plan_pb2, scheduler_pb2, state_pb2, stmgr_pb2, tmaster_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    ]
    assert tried == {f"{service.name}/{method.name}" for service in services for method in service.methods}


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
    files = [path for path in home.rglob("*") if path.is_file()]
    assert [path.name for path in files if token in path.read_bytes()] == ["token"]
    assert any(path.suffix == ".log" for path in files)
    processes = list(find_by_environment({TOPOLOGY_ENV: numbers.launch.topology_id}))
    assert len(processes) >= len(numbers.processes()) > 10
    for process, _ in processes:
        for what in ("cmdline", "environ"):
            assert token not in Path(f"/proc/{process.pid}/{what}").read_bytes()


def test_processes_listen_to_this_machine_only(numbers: TopologyHandle) -> None:
    listening = [
        connection.laddr.ip
        for process, _ in find_by_environment({TOPOLOGY_ENV: numbers.launch.topology_id})
        for connection in psutil.Process(process.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 5
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def _exists(path: Path) -> None:
    assert path.exists()
