"""A state manager that loses its data or its sessions: the Topology Master writes the state again, or ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tmaster_peers import Stmgr, target
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
async def test_a_topology_master_on_a_host_of_its_own_writes_all_again_only_if_it_has_a_stream_manager(
    launch: Launch, with_stmgr: bool
) -> None:
    """It was cut off, and finds nothing: its topology was killed meanwhile, or the state manager has lost its data."""
    async with on_its_own_host(launch, with_stmgr=with_stmgr) as (tmaster, sm):
        before, refusals = nodes(sm), Refusals(tmaster)
        for kind in sorted(Kind, key=lambda kind: kind is not Kind.EXECUTIONSTATE):
            await asyncio.to_thread(sm.delete, kind, "words")
        if with_stmgr:
            await eventually(lambda: _all_there(sm, before), within_s=WITHIN_S)
        else:
            await refusals.until("it may be killed", times=2)
            assert left(sm) <= {Kind.TMASTERS}, "which is gone as soon as it is"


@pytest.mark.parametrize("with_stmgr", [False, True])
async def test_a_topology_master_that_lives_while_its_topology_is_removed_writes_nothing_again(
    launch: Launch, with_stmgr: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_its_own_host(launch, with_stmgr=with_stmgr) as (tmaster, sm):
        refusals, loop, delete = Refusals(tmaster), asyncio.get_running_loop(), sm.delete

        def delete_slowly(kind: Kind, topology: str) -> bool:
            deleted = delete(kind, topology)
            if kind is Kind.TOPOLOGIES:
                refused = refusals.until("is being removed", times=1)
                asyncio.run_coroutine_threadsafe(refused, loop).result(WITHIN_S)
            return deleted

        monkeypatch.setattr(sm, "delete", delete_slowly)
        await asyncio.to_thread(sm.remove_topology, "words")
        refusals.count = 0
        await refusals.until("is being removed", times=2)
        assert left(sm) <= {Kind.TMASTERS}, "which is gone as soon as it is"


@pytest.mark.parametrize("with_stmgr", [False, True])
async def test_a_topology_master_that_was_cut_off_while_its_topology_was_killed_writes_nothing_again(
    launch: Launch, with_stmgr: bool
) -> None:
    async with on_its_own_host(launch, with_stmgr=with_stmgr) as (tmaster, sm):
        refusals = Refusals(tmaster)
        await asyncio.to_thread(sm.bury, "words-1")
        for kind in KEPT:  # without the mark of a removal, which it has not seen
            await asyncio.to_thread(sm.delete, kind, "words")
        await refusals.until("was killed", times=2)
        assert left(sm) == set()


@contextlib.asynccontextmanager
async def on_its_own_host(launch: Launch, *, with_stmgr: bool) -> AsyncIterator[tuple[TopologyMaster, StateManager]]:
    """A Topology Master whose directory is not the submitter's, and perhaps a Stream Manager that is registered."""
    (launch.dir / CONTAINER_LOCK_FILE).touch()
    stmgr = Stmgr(launch, 1)
    with open_statemgr(launch.statemgr) as sm:
        submitted(sm)
        tmaster = TopologyMaster(launch)
        async with running(tmaster), contextlib.AsyncExitStack() as stack:
            if with_stmgr:
                await stack.enter_async_context(stmgr.registered(target(sm)))
                await eventually(lambda: _registered(tmaster), within_s=WITHIN_S)
            yield tmaster, sm


def left(sm: StateManager) -> set[Kind]:
    return {kind for kind in Kind if sm.get(kind, "words") is not None}


class Refusals:
    """How often a Topology Master was refused to write a node."""

    def __init__(self, tmaster: TopologyMaster) -> None:
        self.count = 0
        self._changed = asyncio.Event()
        self._why = ""
        feed = tmaster.feed

        def watched(event: Any) -> None:
            if isinstance(event, StoreFailed) and self._why and self._why in event.reason:
                self.count += 1
                self._changed.set()
            feed(event)

        tmaster.feed = watched  # type: ignore[method-assign]

    async def until(self, why: str, times: int) -> None:
        """Wait until it was refused so often, for that reason."""
        self._why = why
        async with asyncio.timeout(WITHIN_S):
            while self.count < times:
                self._changed.clear()
                await self._changed.wait()


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
