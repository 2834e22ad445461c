"""A state manager that loses its data or its sessions: the Topology Master writes the state again, or ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_tmaster import Stmgr, target
from topology_on_disk import EngineProcess, launch_in, remove, submit

from heronpy.errors import StateError
from heronpy.proto import state_pb2, topology_pb2
from heronpy.runtime import CONTAINER_LOCK_FILE, Launch, StatemgrSpec, running
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually, eventually_sync
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing
from heronpy.tmaster import StoreFailed, TopologyMaster

WITHIN_S = 120.0
KEPT = (Kind.TOPOLOGIES, Kind.PACKINGPLANS, Kind.EXECUTIONSTATE, Kind.SCHEDULERS, Kind.TMASTERS, Kind.EPOCHS)
needs_zookeeper = pytest.mark.skipif(zookeeper_missing() is not None, reason=zookeeper_missing() or "")


def submitted(sm: StateManager) -> None:
    submit(sm, 1, 2)
    execution = state_pb2.ExecutionState(topology="words", topology_id="words-1")
    sm.set(Kind.EXECUTIONSTATE, "words", execution.SerializeToString())
    sm.set(Kind.SCHEDULERS, "words", state_pb2.SchedulerLocation(topology="words", pid=1).SerializeToString())


def nodes(sm: StateManager) -> dict[Kind, bytes | None]:
    try:
        return {kind: sm.get(kind, "words") for kind in KEPT}
    except StateError as e:
        raise AssertionError(f"not back yet: {e}") from None


def epoch(sm: StateManager) -> state_pb2.Epoch:
    return state_pb2.Epoch.FromString(sm.get(Kind.EPOCHS, "words") or b"")


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path)
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@needs_zookeeper
async def test_a_zookeeper_that_comes_back_empty_is_given_everything_again(tmp_path: Path) -> None:
    with ZookeeperServer(tmp_path / "zookeeper") as zookeeper:
        spec = StatemgrSpec(type="zookeeper", connection=zookeeper.connection, root="/heron")
        launch = launch_in(tmp_path, statemgr=spec)
        with open_statemgr(spec) as sm:
            submitted(sm)
            tmaster = TopologyMaster(launch)
            async with running(tmaster):
                before = await asyncio.to_thread(nodes, sm)
                assert None not in before.values()
                await asyncio.to_thread(zookeeper.kill)
                zookeeper.empty()
                await asyncio.to_thread(zookeeper.start)

                async def as_before() -> None:
                    assert await asyncio.to_thread(nodes, sm) == before

                await eventually(as_before, within_s=WITHIN_S)
                await asyncio.wait_for(tmaster.request_state(tmaster.core.state.runtime), WITHIN_S)
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def test_a_files_root_that_was_removed_is_given_everything_again(launch: Launch) -> None:
    with open_statemgr(launch.statemgr) as sm:
        submitted(sm)
        async with running(TopologyMaster(launch)):
            before = nodes(sm)
            assert None not in before.values()
            await asyncio.to_thread(remove, Path(launch.statemgr.root))

            def as_before() -> None:
                assert nodes(sm) == before

            await eventually(as_before, within_s=WITHIN_S)


def test_a_topology_master_that_starts_beside_an_empty_state_manager_writes_its_copy(launch: Launch) -> None:
    def active(process: EngineProcess) -> None:
        location = state_pb2.TmasterLocation.FromString(sm.get(Kind.TMASTERS, "words") or b"")
        assert location.pid == process.pid
        topology = topology_pb2.Topology.FromString(sm.get(Kind.TOPOLOGIES, "words") or b"")
        assert topology.id == "words-1"
        assert sm.get(Kind.EXECUTIONSTATE, "words") is not None

    with open_statemgr(launch.statemgr) as sm:
        submitted(sm)
        with EngineProcess("tmaster", launch, 0) as first:
            eventually_sync(lambda: active(first), within_s=WITHIN_S)
            eventually_sync(lambda: _has_copies(launch), within_s=WITHIN_S)
            first.kill()
        remove(Path(launch.statemgr.root))
        with EngineProcess("tmaster", launch, 0) as second:
            eventually_sync(lambda: active(second), within_s=WITHIN_S)


@pytest.mark.parametrize("with_stmgr", [False, True])
async def test_a_topology_master_on_a_host_of_its_own_brings_back_no_killed_topology(
    launch: Launch, with_stmgr: bool
) -> None:
    (launch.dir / CONTAINER_LOCK_FILE).touch()
    stmgr = Stmgr(launch, 1)
    with open_statemgr(launch.statemgr) as sm:
        submitted(sm)
        tmaster = TopologyMaster(launch)
        async with running(tmaster), contextlib.AsyncExitStack() as stack:
            before = nodes(sm)
            if with_stmgr:
                await stack.enter_async_context(stmgr.registered(target(sm)))
                await eventually(lambda: _registered(tmaster), within_s=WITHIN_S)
            refused = asyncio.create_task(_wait_for_refusal(tmaster))
            await asyncio.to_thread(sm.remove_topology, "words")
            if with_stmgr:
                await eventually(lambda: _all_there(sm, before), within_s=WITHIN_S)
                refused.cancel()
                return
            await asyncio.wait_for(refused, WITHIN_S)
            left = {kind for kind in Kind if sm.get(kind, "words") is not None}
            assert left <= {Kind.TMASTERS}, "which is gone as soon as it is"


async def _wait_for_refusal(tmaster: TopologyMaster) -> None:
    """Until it has been refused to write a node again, twice."""
    feed, refusals = tmaster.feed, 0
    enough = asyncio.Event()

    def watched(event: Any) -> None:
        nonlocal refusals
        if isinstance(event, StoreFailed) and "it may be killed" in event.reason:
            refusals += 1
            if refusals == 2:
                enough.set()
        feed(event)

    tmaster.feed = watched  # type: ignore[method-assign]
    await enough.wait()


def _registered(tmaster: TopologyMaster) -> None:
    assert tmaster.core.state.stmgrs


def _all_there(sm: StateManager, before: dict[Kind, bytes | None]) -> None:
    durable = [kind for kind in KEPT if kind is not Kind.TMASTERS]
    assert {kind: sm.get(kind, "words") for kind in durable} == {kind: before[kind] for kind in durable}


def _has_copies(launch: Launch) -> None:
    kept = {path.name for path in (launch.container_dir(0) / "state").glob("[a-z]*")}
    assert kept >= {"topologies", "packingplans", "executionstate", "schedulers"}


@needs_zookeeper
def test_a_topology_master_whose_session_has_expired_ends_and_leaves_the_next_one_alone(tmp_path: Path) -> None:
    with ZookeeperServer(tmp_path / "zookeeper", session_timeout_max_ms=10_000) as zookeeper:
        spec = StatemgrSpec(type="zookeeper", connection=zookeeper.connection, root="/heron")
        launch = launch_in(tmp_path, statemgr=spec)
        with open_statemgr(spec) as sm:
            submitted(sm)

            def leads(process: EngineProcess, term: int) -> None:
                found = epoch(sm)
                leader = state_pb2.TmasterLocation.FromString(found.leader)
                assert (leader.pid, found.term) == (process.pid, term)

            with EngineProcess("tmaster", launch, 0) as first:
                eventually_sync(lambda: leads(first, 1), within_s=WITHIN_S)
                with EngineProcess("tmaster", launch, 0) as second:
                    os.kill(first.pid, signal.SIGSTOP)  # for longer than its session
                    try:
                        eventually_sync(lambda: leads(second, 2), within_s=WITHIN_S)
                    finally:
                        os.kill(first.pid, signal.SIGCONT)

                    def ended() -> None:
                        assert first.returncode == 1

                    eventually_sync(ended, within_s=WITHIN_S)
                    leads(second, 2)
                    location = state_pb2.TmasterLocation.FromString(sm.get(Kind.TMASTERS, "words") or b"")
                    assert location.pid == second.pid
                    assert second.returncode is None
    shutil.rmtree(launch.socket_root(), ignore_errors=True)
