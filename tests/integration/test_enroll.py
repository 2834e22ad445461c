"""A container's certificate: who is given one by the Topology Master, and what a bootstrap certificate opens."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from topology_on_disk import launch_in, submit

from heronpy.container import TRY_AGAIN, Bootstrap, bootstrap_document, make_directory
from heronpy.errors import ConfigError
from heronpy.executor import take_incarnation
from heronpy.proto import state_pb2, tmaster_pb2
from heronpy.proto.tmaster_pb2_grpc import TmasterStub
from heronpy.rpc import channel, listen
from heronpy.runtime import INCARNATION_ENV, Launch, running
from heronpy.security import Security, authority, container_identity
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually
from heronpy.tmaster import TopologyMaster


class Cluster:
    """A topology with a Topology Master, and a host with container 1 that has its bootstrap file."""

    def __init__(self, launch: Launch, host: Path) -> None:
        self.launch = launch
        with open_statemgr(launch.statemgr) as state:
            submit(state, 1, 2)
            execution = state_pb2.ExecutionState(topology="words", topology_id="words-1")
            state.set(Kind.EXECUTIONSTATE, "words", execution.SerializeToString())
        self.here = make_directory(Bootstrap.decode(bootstrap_document(launch, 1)), host)

    @property
    def own(self) -> Path:
        return self.here.tls_dir / "container-1.pem"

    def take(self) -> int:
        with open_statemgr(self.launch.statemgr) as state:
            return take_incarnation(state, self.here, 1).incarnation

    def target(self) -> str:
        with open_statemgr(self.launch.statemgr) as state:
            found = state_pb2.TmasterLocation.FromString(state.get(Kind.TMASTERS, "words") or b"")
        return f"{found.host}:{found.port}"

    async def ask(self, incarnation: int, *, security: Security | None = None, **fields: Any) -> bytes:
        security = security or self.here.security("bootstrap-1")
        _, request = authority.request("container-1")
        values = {"container": 1, "incarnation": incarnation, "request": request, "now_s": int(time.time())}
        async with channel(self.target(), security, container_identity(0)) as link:
            message = tmaster_pb2.EnrollRequest(**{**values, **fields})
            reply = await TmasterStub(link).Enroll(message, metadata=security.metadata, timeout=60)
        certificate: bytes = reply.certificate
        return certificate

    def enroll(self, incarnation: int, *, wait_s: float = 60) -> tuple[int, str]:
        """What `heronpy.container.enroll` returns and says."""
        where = ["--dir", str(self.here.dir), "--container", "1", "--wait", str(wait_s)]
        ended = subprocess.run(
            [sys.executable, "-m", "heronpy.container.enroll", *where],
            capture_output=True,
            text=True,
            env={**os.environ, INCARNATION_ENV: str(incarnation)},
            timeout=300,
        )
        return ended.returncode, ended.stderr


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    launch = launch_in(tmp_path)
    made = Cluster(launch, tmp_path / "host")
    async with running(TopologyMaster(launch)):
        yield made
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def test_a_host_gets_a_certificate_for_a_key_of_its_own_and_a_newer_one_by_the_same_call(
    cluster: Cluster,
) -> None:
    incarnation = await asyncio.to_thread(cluster.take)
    assert await asyncio.to_thread(cluster.enroll, incarnation) == (0, "")
    first, certificate = cluster.own.read_bytes(), authority.described(cluster.own)
    assert certificate.uri == "heron://words-1/container/1"
    assert certificate.trouble(datetime.datetime.now(datetime.UTC)) == ""
    (cluster.here.tls_dir / "bootstrap-1.pem").unlink()  # it is not needed any more
    assert await asyncio.to_thread(cluster.enroll, incarnation) == (0, "")
    second = cluster.own.read_bytes()
    assert second.partition(b"CERTIFICATE")[0] != first.partition(b"CERTIFICATE")[0], "another key"


async def test_only_the_newest_incarnation_is_given_a_certificate(cluster: Cluster) -> None:
    old = await asyncio.to_thread(cluster.take)
    new = await asyncio.to_thread(cluster.take)
    for incarnation in (old, new + 1, 0):
        with pytest.raises(grpc.aio.AioRpcError, match=f"incarnation {new} of container 1") as refused:
            await cluster.ask(incarnation)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    code, said = await asyncio.to_thread(cluster.enroll, old)
    assert code == 0, "its replacement is there: nothing is left to do"
    assert f"incarnation {new}" in said
    assert not cluster.own.exists()
    assert await cluster.ask(new)


async def test_who_has_a_certificate_of_the_older_incarnation_is_refused_when_the_newer_has_one(
    cluster: Cluster,
) -> None:
    old = await asyncio.to_thread(cluster.take)
    await asyncio.to_thread(cluster.enroll, old)
    new = await asyncio.to_thread(cluster.take)
    await cluster.ask(new)
    security = dataclasses.replace(cluster.here.security("metricsmgr-1"), incarnation=old)
    async with channel(cluster.target(), security, container_identity(0)) as link:
        with pytest.raises(grpc.aio.AioRpcError, match="container 1 has a newer incarnation"):
            await TmasterStub(link).GetStatus(tmaster_pb2.TopologyRequest(), metadata=security.metadata, timeout=60)


async def test_nobody_asks_for_another_container(cluster: Cluster) -> None:
    incarnation = await asyncio.to_thread(cluster.take)
    await asyncio.to_thread(cluster.enroll, incarnation)
    present = dataclasses.replace(cluster.here.security("executor-1"), incarnation=incarnation)
    for security in (None, present, cluster.launch.security("heron")):
        with pytest.raises(grpc.aio.AioRpcError, match="may not ask for the certificate of container 2") as refused:
            await cluster.ask(incarnation, security=security, container=2)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_what_is_no_request_and_a_wrong_clock_are_refused(cluster: Cluster) -> None:
    incarnation = await asyncio.to_thread(cluster.take)
    for request in (
        b"",
        b"no request",
        b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    ):
        with pytest.raises(grpc.aio.AioRpcError, match="certificate request") as refused:
            await cluster.ask(incarnation, request=request)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    for skew_s, side in ((7900, "ahead of"), (-7100, "behind")):
        with pytest.raises(grpc.aio.AioRpcError, match=rf"clock is 7\d\d\d s {side}") as refused:
            await cluster.ask(incarnation, now_s=int(time.time()) + skew_s)
        assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE


async def test_a_bootstrap_certificate_opens_nothing_else(cluster: Cluster) -> None:
    security = cluster.here.security("bootstrap-1")
    async with channel(cluster.target(), security, container_identity(0)) as link:
        stub = TmasterStub(link)
        for method in (stub.GetStatus, stub.GetPhysicalPlan, stub.Deactivate):
            with pytest.raises(grpc.aio.AioRpcError, match="bootstrap-1 may not call this") as refused:
                await method(tmaster_pb2.TopologyRequest(), metadata=security.metadata, timeout=60)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        as_container = cluster.launch.security("executor-1").metadata
        with pytest.raises(grpc.aio.AioRpcError, match="the certificate is not that of executor-1"):
            await stub.GetStatus(tmaster_pb2.TopologyRequest(), metadata=as_container, timeout=60)
    listener = listen("127.0.0.1:0", "127.0.0.1", cluster.launch.security("stmgr-2"))
    listener.server.add_generic_rpc_handlers((_echo(),))
    await listener.server.start()
    async with channel(listener.address, security, container_identity(2)) as link:
        with pytest.raises(grpc.aio.AioRpcError, match="bootstrap-1 may not call this"):
            await link.unary_unary("/Echo/Say")(b"hello", metadata=security.metadata, timeout=60)
    await listener.server.stop(0)


@pytest.mark.parametrize("wait_s", [0, 2])
async def test_a_topology_master_that_is_away_is_waited_for_and_then_tried_again(tmp_path: Path, wait_s: int) -> None:
    cluster = Cluster(launch_in(tmp_path), tmp_path / "host")
    code, said = await asyncio.to_thread(cluster.enroll, cluster.take(), wait_s=wait_s)
    assert code == TRY_AGAIN
    assert f"no certificate after {wait_s} s: the topology has no Topology Master yet" in said
    assert said.count("\n") == 2, "what it waits for is said once"


@pytest.mark.parametrize("days", [-3, 3])
def test_a_host_whose_clock_is_out_of_the_bootstrap_certificate_is_refused_in_one_line(
    tmp_path: Path, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = datetime.datetime

    class Shifted(real):
        """The clock of the machine on which it is made."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return real.now(tz) + datetime.timedelta(days=days - 1 if days < 0 else days)

    launch = launch_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(datetime, "datetime", Shifted)
        authority.issue(launch.tls_dir, launch.topology_id, "bootstrap-1", days=1)
        cluster = Cluster(launch, tmp_path / "host")
    found, said = cluster.enroll(cluster.take())
    assert found == ConfigError.exit_code, "as with a smaller difference: the submission ends, and says it"
    assert said.count("\n") == 1
    assert ("expired at" if days < 0 else "set the clock of this host") in said


async def test_a_topology_master_whose_certificate_cannot_be_verified_is_soon_reported(
    cluster: Cluster, tmp_path: Path
) -> None:
    authority.create(tmp_path / "other", "words-1", [], days=1)
    shutil.copy(tmp_path / "other/ca.pem", cluster.here.tls_dir / "ca.pem")  # as for a clock in another year
    incarnation = await asyncio.to_thread(cluster.take)
    began_s = time.monotonic()
    code, said = await asyncio.to_thread(cluster.enroll, incarnation, wait_s=200)
    assert time.monotonic() - began_s < 100
    assert code == TRY_AGAIN
    assert "is the clock of this host right?" in said.splitlines()[-1]


def _echo() -> grpc.GenericRpcHandler:
    async def say(message: bytes, _context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        return message

    return grpc.method_handlers_generic_handler("Echo", {"Say": grpc.unary_unary_rpc_method_handler(say)})


async def test_the_certificate_is_renewed_before_it_is_due(cluster: Cluster) -> None:
    from heronpy.container.executor import CertificateRenewal

    incarnation = await asyncio.to_thread(cluster.take)
    await asyncio.to_thread(cluster.enroll, incarnation)
    before = cluster.own.read_bytes()
    with _environment(INCARNATION_ENV, str(incarnation)):
        renewal = CertificateRenewal(cluster.here, 1)
        renewal.tick(0)
        assert cluster.own.read_bytes() == before, "it has most of its time left"
        old_s = time.time() - 250 * 86_400
        os.utime(cluster.own, (old_s, old_s))

        def renewed() -> None:
            renewal.tick(100_000)
            assert cluster.own.read_bytes() != before

        await eventually(renewed)


@contextlib.contextmanager
def _environment(key: str, value: str) -> Any:
    os.environ[key] = value
    try:
        yield
    finally:
        del os.environ[key]
