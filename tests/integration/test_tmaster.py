"""The Topology Master over real sockets, in this process and as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
from pathlib import Path

import grpc
import grpc.aio
import pytest
import tmaster_peers
from tmaster_peers import REQUEST, Stmgr, at_version, client, location, saved_plan, target, target_of
from topology_on_disk import EngineProcess, launch_in, packing_plan, submit

from heronpy.errors import AlreadyExistsError, StateError
from heronpy.plan import PhysicalPlan, TopologyState
from heronpy.proto import metrics_pb2, state_pb2, tmaster_pb2, tmaster_pb2_grpc, topology_pb2
from heronpy.rpc import channel
from heronpy.runtime import Launch, StatemgrSpec, running
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing
from heronpy.tmaster import Core, TopologyMaster

launch, sm = tmaster_peers.launch, tmaster_peers.sm


async def test_the_plan_is_saved_and_sent_when_all_have_registered(launch: Launch, sm: StateManager) -> None:
    async with running(TopologyMaster(launch)):
        at = target(sm)
        one, two = Stmgr(launch, 1), Stmgr(launch, 2)
        async with client(launch, at) as tmaster, one.registered(at):
            with pytest.raises(grpc.aio.AioRpcError) as no_plan:
                await tmaster.call("GetPhysicalPlan")
            assert no_plan.value.code() is grpc.StatusCode.NOT_FOUND
            async with two.registered(at):
                await eventually(at_version(1, one, two))
                plan = one.plans[0]
                assert plan.stmgrs == (one.location, two.location)
                assert saved_plan(sm) == plan == two.plans[0]
                assert PhysicalPlan.from_proto(await tmaster.call("GetPhysicalPlan")) == plan


async def test_what_is_due_and_cannot_be_done_yet_leaves_others_their_turn(
    launch: Launch, sm: StateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Core, "due_s", 0.0)
    async with asyncio.timeout(60), running(TopologyMaster(launch)):
        for _ in range(10):
            await asyncio.sleep(0)  # as everybody else in this event loop


async def test_a_replaced_stmgr_is_announced_to_all(launch: Launch, sm: StateManager) -> None:
    async with running(TopologyMaster(launch)):
        at = target(sm)
        one, two, again = Stmgr(launch, 1), Stmgr(launch, 2), Stmgr(launch, 2, incarnation=2)
        async with one.registered(at):
            async with two.registered(at):
                await eventually(at_version(1, one, two))
            async with again.registered(at):
                await eventually(at_version(2, one, again))
                assert one.plans[-1].stmgrs == (one.location, again.location)
                assert len(again.plans) == 1


async def test_a_changed_packing_plan_is_announced_when_its_stmgrs_are_there(launch: Launch, sm: StateManager) -> None:
    async with running(TopologyMaster(launch)):
        at = target(sm)
        one, two, three = (Stmgr(launch, c) for c in (1, 2, 3))
        async with one.registered(at), two.registered(at):
            await eventually(at_version(1, one, two))
            sm.set(Kind.PACKINGPLANS, "words", packing_plan(1, 2, 3).to_proto().SerializeToString())
            async with three.registered(at):
                await eventually(at_version(2, one, two, three))
                assert one.plans[-1].packing == packing_plan(1, 2, 3)


async def test_a_packing_plan_of_another_topology_is_not_used(
    launch: Launch, sm: StateManager, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> None:
        assert "the new packing plan is not used" in caplog.text

    async with running(TopologyMaster(launch)):
        at = target(sm)
        one, two = Stmgr(launch, 1), Stmgr(launch, 2)
        async with one.registered(at), two.registered(at):
            await eventually(at_version(1, one, two))
            wrong = packing_plan(1).to_proto()
            wrong.containers[0].instances[0].component = "verb"
            sm.set(Kind.PACKINGPLANS, "words", wrong.SerializeToString())
            await eventually(refused)
            sm.set(Kind.PACKINGPLANS, "words", packing_plan(1).to_proto().SerializeToString())
            await eventually(at_version(2, one))
            assert one.plans[-1].packing == packing_plan(1)


async def test_a_silent_stmgr_is_lost_and_its_stream_ends(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, {"heron.tmanager.stmgr.state.timeout.ms": 400})
    with open_statemgr(launch.statemgr) as sm:
        submit(sm, 1, 2)
        async with running(TopologyMaster(launch)):
            at = target(sm)
            one, two = Stmgr(launch, 1), Stmgr(launch, 2)
            async with client(launch, at) as tmaster, one.registered(at), two.registered(at, beats=False):

                async def lost() -> None:
                    # Not that the other one stays: on a busy machine it may be silent for so long, too.
                    status = await tmaster.call("GetStatus")
                    assert "stmgr-2" in {s.location.id for s in status.stmgrs if not s.registered}
                    assert two.ended is grpc.StatusCode.ABORTED

                await eventually(lost)
                assert one.version == 1, "a lost Stream Manager stays in the plan"
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def test_the_state_is_durable_before_the_reply_and_reaches_all(launch: Launch, sm: StateManager) -> None:
    async with running(TopologyMaster(launch)):
        at = target(sm)
        one, two = Stmgr(launch, 1), Stmgr(launch, 2)
        async with client(launch, at) as tmaster, one.registered(at), two.registered(at):
            await eventually(at_version(1, one, two))
            for call, state in (("Deactivate", TopologyState.PAUSED), ("Activate", TopologyState.RUNNING)):
                assert (await tmaster.call(call)).state == state.name
                assert saved_plan(sm).state is state
                topology = topology_pb2.Topology.FromString(sm.get(Kind.TOPOLOGIES, "words") or b"")
                assert topology.state == state
                assert (await tmaster.call("GetStatus")).state == state.name
            await eventually(at_version(3, one, two))
            assert one.plans[-1].state is TopologyState.RUNNING


async def test_status_is_ready_when_all_instances_are_attached(launch: Launch, sm: StateManager) -> None:
    async with running(TopologyMaster(launch)):
        at = target(sm)
        one, two = Stmgr(launch, 1), Stmgr(launch, 2)
        async with client(launch, at) as tmaster, one.registered(at), two.registered(at):

            async def attached(*expected: bool) -> None:
                status = await tmaster.call("GetStatus")
                assert [i.attached for i in status.instances] == list(expected)
                assert status.ready == all(expected)

            await eventually(at_version(1, one, two))
            one.attach("container_1_word_1")
            await eventually(lambda: attached(True, False))
            two.attach("container_2_word_2")
            await eventually(lambda: attached(True, True))
            status = await tmaster.call("GetStatus")
            assert (status.topology, status.plan_version, status.tmaster_pid) == ("words", 1, os.getpid())
            two.attach()
            await eventually(lambda: attached(True, False))


async def test_status_has_the_metrics_and_exceptions_that_were_published(launch: Launch, sm: StateManager) -> None:
    def report(sequence: int, count: float) -> metrics_pb2.MetricsReport:
        return metrics_pb2.MetricsReport(
            source="container_1_word_1",
            component="word",
            container=1,
            pid=77,
            started_ms=1000,
            sequence=sequence,
            time_ms=1000 + sequence * 1000,
            metrics=[
                metrics_pb2.Metric(name="__emit-count/default", value=count),
                metrics_pb2.Metric(name="__py-thread-count", value=4, kind=metrics_pb2.Metric.GAUGE),
            ],
            exceptions=[metrics_pb2.ExceptionReport(stacktrace="boom", count=sequence)],
        )

    async with running(TopologyMaster(launch)), client(launch, target(sm)) as tmaster:
        for sequence, count in ((1, 10), (2, 30), (2, 30)):
            reports = metrics_pb2.MetricsReports(reports=[report(sequence, count)])
            await tmaster.call("PublishMetrics", reports)
        status = await tmaster.call("GetStatus")
        instance = status.instances[0]
        assert (instance.id, instance.pid, instance.started_ms) == ("container_1_word_1", 77, 1000)
        assert dict(instance.totals) == {"__emit-count/default": 30}
        assert dict(instance.latest) == {"__py-thread-count": 4}
        assert dict(instance.rates) == {"__emit-count/default": 15}
        assert [(e.source, e.report.stacktrace, e.report.count) for e in status.exceptions] == [
            ("container_1_word_1", "boom", 2)
        ]


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_every_call_needs_the_token(launch: Launch, sm: StateManager, token: str) -> None:
    unary = {
        "Enroll": tmaster_pb2.EnrollRequest(container=1),
        "Activate": REQUEST,
        "Deactivate": REQUEST,
        "GetStatus": REQUEST,
        "GetHealth": REQUEST,
        "GetPhysicalPlan": REQUEST,
        "PublishMetrics": metrics_pb2.MetricsReports(),
        "GetMetrics": tmaster_pb2.MetricsRequest(),
        "GetExceptions": tmaster_pb2.ExceptionsRequest(),
        "GetExceptionSummary": tmaster_pb2.ExceptionsRequest(),
        "SetLogLevel": tmaster_pb2.LogLevelRequest(target="tmaster", level="DEBUG"),
        "GetLogLevels": tmaster_pb2.TopologyRequest(),
        "Update": tmaster_pb2.UpdateRequest(timeout_s=1),
        "TakeCheckpoint": tmaster_pb2.CheckpointRequest(timeout_ms=1000),
    }
    service = tmaster_pb2.DESCRIPTOR.services_by_name["Tmaster"]
    assert {m.name for m in service.methods} == {*unary, "Register"}, "a new call needs this test, too"
    stranger = dataclasses.replace(launch.security("heron"), token=token)
    async with running(TopologyMaster(launch)), channel(target(sm), stranger, container_identity(0)) as to_tmaster:
        stub = tmaster_pb2_grpc.TmasterStub(to_tmaster)
        for name, request in unary.items():
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await getattr(stub, name)(request, metadata=stranger.metadata, timeout=60, wait_for_ready=True)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, name
        register = stub.Register(metadata=stranger.metadata, timeout=60, wait_for_ready=True)
        assert await register.code() is grpc.StatusCode.UNAUTHENTICATED
        topology = topology_pb2.Topology.FromString(sm.get(Kind.TOPOLOGIES, "words") or b"")
        assert topology.state == topology_pb2.RUNNING


async def test_a_state_that_changes_nothing_is_confirmed_at_once_after_a_restart(
    launch: Launch, sm: StateManager
) -> None:
    one, two = Stmgr(launch, 1), Stmgr(launch, 2)
    async with running(TopologyMaster(launch)):
        at = target(sm)
        async with one.registered(at), two.registered(at):
            await eventually(at_version(1, one, two))
    async with running(TopologyMaster(launch)), client(launch, target(sm)) as tmaster:
        # If it waited for a plan, it would do so until the call is given up: there is nobody who makes one.
        assert (await tmaster.call("Activate")).state == "RUNNING"


async def test_a_state_that_cannot_be_made_durable_is_not_taken_on(launch: Launch, sm: StateManager) -> None:
    topologies = Path(launch.statemgr.root) / "topologies"
    async with running(TopologyMaster(launch)), client(launch, target(sm)) as tmaster:
        topologies.rename(topologies.with_name("away"))
        topologies.write_text("not a directory")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await tmaster.call("Deactivate")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (await tmaster.call("GetStatus")).state == "RUNNING"
        topologies.unlink()
        topologies.with_name("away").rename(topologies)
        assert (await tmaster.call("Deactivate")).state == "PAUSED"


async def test_a_plan_is_sent_although_the_state_manager_is_away_and_saved_when_it_is_back(
    launch: Launch, sm: StateManager
) -> None:
    plans = Path(launch.statemgr.root) / "pplans"
    async with running(TopologyMaster(launch)):
        at = target(sm)
        plans.rename(plans.with_name("away"))
        plans.write_text("not a directory")
        one, two = Stmgr(launch, 1), Stmgr(launch, 2)
        async with one.registered(at), two.registered(at):
            await eventually(at_version(1, one, two))
            plans.unlink()
            plans.with_name("away").rename(plans)

            def saved() -> None:
                assert saved_plan(sm).version == 1

            await eventually(saved)


@pytest.mark.skipif(zookeeper_missing() is not None, reason=zookeeper_missing() or "")
async def test_a_dead_zookeeper_stops_neither_the_topology_master_nor_a_new_plan(tmp_path: Path) -> None:
    with ZookeeperServer(tmp_path / "zookeeper") as zookeeper:
        spec = StatemgrSpec(type="zookeeper", connection=zookeeper.connection, root="/heron")
        launch = launch_in(tmp_path, statemgr=spec)
        with open_statemgr(spec) as sm:
            submit(sm, 1, 2)
            tmaster = TopologyMaster(launch)
            async with running(tmaster):
                at = target(sm)
                one, two, moved = Stmgr(launch, 1), Stmgr(launch, 2), Stmgr(launch, 2, incarnation=2)
                async with one.registered(at):
                    async with two.registered(at):
                        await eventually(at_version(1, one, two))
                    await asyncio.to_thread(zookeeper.kill)
                    async with moved.registered(at):
                        await eventually(at_version(2, one, moved))
                        await asyncio.to_thread(zookeeper.start)

                        async def as_before() -> None:
                            try:
                                assert await asyncio.to_thread(target, sm) == at
                                assert (await asyncio.to_thread(saved_plan, sm)).version == 2
                            except StateError as e:
                                raise AssertionError(f"not back yet: {e}") from None

                        await eventually(as_before)
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def test_it_makes_its_node_again_and_ends_when_another_has_it(launch: Launch, sm: StateManager) -> None:
    tmaster = TopologyMaster(launch)
    run = asyncio.create_task(tmaster.run())
    await asyncio.wait_for(tmaster.started.wait(), 120)
    before = target(sm)
    sm.delete(Kind.TMASTERS, "words")

    def is_back() -> None:
        assert target(sm) == before

    await eventually(is_back)
    other = state_pb2.TmasterLocation(topology="words", host="127.0.0.1", port=1).SerializeToString()

    def taken() -> None:
        sm.delete(Kind.TMASTERS, "words")
        try:
            sm.create(Kind.TMASTERS, "words", other, ephemeral=True)
        except AlreadyExistsError:
            raise AssertionError("it was quicker") from None

    await eventually(taken)
    with pytest.raises(StateError, match="'words': another Topology Master has taken its node"):
        await asyncio.wait_for(run, 120)
    assert sm.get(Kind.TMASTERS, "words") == other, "the other one's node is left alone"


async def test_after_kill_9_the_next_one_continues_where_it_was(launch: Launch, sm: StateManager) -> None:
    one, two = Stmgr(launch, 1), Stmgr(launch, 2)
    with EngineProcess("tmaster", launch, 0) as process:
        at = await target_of(sm, process.pid)
        async with client(launch, at) as tmaster, one.registered(at), two.registered(at):
            await eventually(at_version(1, one, two))
            await tmaster.call("Deactivate")
            await eventually(at_version(2, one, two))
            process.kill()

            def ended() -> None:
                assert one.ended is not None  # UNAVAILABLE, or INTERNAL where it was just writing

            await eventually(ended)
    with EngineProcess("tmaster", launch, 0) as process:
        at = await target_of(sm, process.pid)
        async with client(launch, at) as tmaster, one.registered(at), two.registered(at):

            def told_again() -> None:
                assert [p.version for p in one.plans] == [p.version for p in two.plans] == [1, 2, 2]

            await eventually(told_again)
            assert (await tmaster.call("GetStatus")).state == "PAUSED"
        process.kill()
    moved = Stmgr(launch, 2, incarnation=2)
    with EngineProcess("tmaster", launch, 0) as process:
        at = await target_of(sm, process.pid)
        async with one.registered(at), moved.registered(at):
            await eventually(at_version(3, one, moved))
            assert one.plans[-1].state is TopologyState.PAUSED
        assert process.terminate() == 0
    assert sm.get(Kind.TMASTERS, "words") is None


async def test_of_several_one_is_active_and_another_takes_over_when_it_dies(launch: Launch, sm: StateManager) -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(EngineProcess("tmaster", launch, 0)) for _ in range(3)]
        pids = {p.pid for p in processes}
        for remaining in (3, 2, 1):

            def active() -> int:
                pid = location(sm).pid
                assert pid in pids, "the owner is dead"
                return pid

            pid = await eventually(active)
            one, two = Stmgr(launch, 1), Stmgr(launch, 2)
            async with one.registered(target(sm)), two.registered(target(sm)):
                await eventually(at_version(1, one, two))
            assert [p.returncode for p in processes if p.pid in pids] == [None] * remaining
            next(p for p in processes if p.pid == pid).kill()
            pids.discard(pid)
    assert sm.get(Kind.TMASTERS, "words") is None


async def test_without_a_packing_plan_it_ends_with_an_error(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    with EngineProcess("tmaster", launch, 0) as process:

        def ended() -> None:
            assert process.returncode == 1

        await eventually(ended)
    assert "submit it again" in (launch.log_dir(0) / "tmaster.log").read_text()
    shutil.rmtree(launch.socket_root(), ignore_errors=True)
