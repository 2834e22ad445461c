"""The Topology Master's shell: turns gRPC calls and the state manager's news into events, and effects into work.

Order of things: listen, take the ephemeral node (a standby waits here), read back what the state manager holds, answer.
A plan is saved before it is sent, but a state manager that is away holds it up only for SAVE_WAIT_S: Stream Managers
that cannot find each other are worse than a plan that is saved late, and versions survive that (see `_state`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import grpc
import grpc.aio

from heronpy.errors import AlreadyExistsError, HeronError, NotFoundError, StateError, TopologyError, UsageError
from heronpy.metricsmgr import Reporter
from heronpy.plan import LogicalPlan, PackingPlan, PhysicalPlan, StmgrLocation, TopologyState
from heronpy.proto import loglevels_pb2, metrics_pb2, plan_pb2, state_pb2, tmaster_pb2, tmaster_pb2_grpc, topology_pb2
from heronpy.runtime import Launch, essential, server
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.tmaster._exceptions import summary
from heronpy.tmaster._log_levels import LogLevelKeeper, check, targets
from heronpy.tmaster._queries import answer, matching_exceptions
from heronpy.tmaster._sessions import Session, Sessions
from heronpy.tmaster._state import (
    CloseSession,
    Effect,
    Event,
    HeartbeatReceived,
    PackingChanged,
    PublishPlan,
    SendPlan,
    SessionEnded,
    State,
    StateChanged,
    StmgrRegistered,
    TimePassed,
    check_fits,
    start,
    step,
)
from heronpy.tmaster._status import Metrics, status

log = logging.getLogger(__name__)

SAVE_WAIT_S = 2.0
LOOK_S = 2.0
"""How often it looks whether the node is still its own, if the state manager tells nothing."""
RETRY_S = 1.0
ACTIVE_WAIT_S = 5.0
"""How long a call waits for a Topology Master that is still starting, or is a standby."""

_Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


class TopologyMaster(tmaster_pb2_grpc.TmasterServicer):
    """The Topology Master of one topology, as a service. `started` is set when it is the active one."""

    def __init__(self, launch: Launch, container: int = 0) -> None:
        self.started = asyncio.Event()
        self._launch = launch
        self._topology = launch.topology
        self._token = launch.token()
        self._host = "127.0.0.1" if launch.cluster == "local" else socket.gethostname()
        self._started_ms = int(time.time() * 1000)
        self._timeout_s = launch.config.tmaster.stmgr_timeout_ms / 1000
        self._sessions = Sessions()
        self._metrics = Metrics(launch.config.tmaster, launch.config.metrics.interval_ms / 1000, self._started_ms)
        self._reporter = Reporter(
            launch, container=container, source="tmaster", component="__tmaster__", collect=self._collect
        )
        self._state_change = asyncio.Lock()
        self._node_seen = asyncio.Event()
        self._packing_seen = asyncio.Event()
        self._packing_value: bytes | None = None
        self._plan_made = asyncio.Event()
        self._plan_unsaved = asyncio.Event()
        self._plan_saved = asyncio.Event()
        self._plan_published = asyncio.Event()
        self._published_version = 0
        self._saved_version = 0
        # Set before `started`, which every call waits for.
        self._state: State
        self._statemgr: StateManager
        self._log_levels: LogLevelKeeper
        self._location: bytes
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            StateError: the state manager cannot be reached at the start, or another Topology Master has the node.
            NotFoundError: the state manager has no topology, or no packing plan of it.
        """
        self._statemgr = await asyncio.to_thread(open_statemgr, self._launch.statemgr)
        self._log_levels = LogLevelKeeper(self._statemgr, self._topology)
        try:
            async with self._listen():
                await self._watch(Kind.TMASTERS, self._on_node)
                await self._take_node()
                effects = await self._read_back()
                async with asyncio.TaskGroup() as self._tasks:
                    for work in (self._hold_node, self._follow_packing, self._save, self._publish, self._watch_time):
                        self._tasks.create_task(essential(work()), name=f"tmaster/{work.__name__}")
                    self._tasks.create_task(essential(self._reporter.run()), name="tmaster/metrics")
                    self._tasks.create_task(essential(self._log_levels.run()), name="tmaster/log-levels")
                    self._apply(effects)
                    self.started.set()
        finally:
            await asyncio.to_thread(self._statemgr.close)

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def Register(self, _requests: Any, context: _Context) -> None:
        """The stream of one Stream Manager: its hello and heartbeats in, plans out."""
        await self._active(context)
        hello = await self._hello(context)
        session = self._sessions.open()
        try:
            location = StmgrLocation.from_proto(hello.location)
            self._feed(StmgrRegistered(session.number, location, hello.plan_version, time.monotonic()))
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(session, context))
                while (plan := await session.next_plan()) is not None:
                    await context.write(tmaster_pb2.TmasterMessage(plan=plan))
                reading.cancel()
        finally:
            self._sessions.ended(session)
            self._feed(SessionEnded(session.number, time.monotonic()))
        await context.abort(grpc.StatusCode.ABORTED, session.closed_because)

    async def Activate(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> tmaster_pb2.StateReply:
        """Let the spouts emit. The state is durable, and a plan with it on its way, before the reply."""
        return await self._set_state(TopologyState.RUNNING, context)

    async def Deactivate(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> tmaster_pb2.StateReply:
        """Let the spouts rest. The state is durable, and a plan with it on its way, before the reply."""
        return await self._set_state(TopologyState.PAUSED, context)

    async def GetStatus(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> tmaster_pb2.StatusReply:
        """All that is known of the topology now."""
        await self._active(context)
        return status(self._state, self._metrics, pid=os.getpid(), started_ms=self._started_ms, now_s=time.monotonic())

    async def GetPhysicalPlan(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> plan_pb2.PhysicalPlan:
        """The plan in force. NOT_FOUND before there is one."""
        await self._active(context)
        if self._state.plan is None:
            missing = ", ".join(self._state.missing[:10])
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no physical plan yet: waiting for {missing}")
        return self._state.plan.to_proto()

    async def PublishMetrics(self, request: metrics_pb2.MetricsReports, context: _Context) -> metrics_pb2.PublishReply:
        """Take in reports. Repeated or overtaken ones change nothing."""
        await self._active(context)
        now_s, now_ms = time.monotonic(), int(time.time() * 1000)
        for report in request.reports:
            self._metrics.add(report, now_s, now_ms)
        return metrics_pb2.PublishReply()

    async def GetMetrics(self, request: tmaster_pb2.MetricsRequest, context: _Context) -> tmaster_pb2.MetricsReply:
        """Metrics of the last three hours, or of all time. INVALID_ARGUMENT if that is too much for one reply."""
        await self._active(context)
        try:
            return answer(self._metrics.history, request, int(time.time() * 1000))
        except UsageError as e:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))

    async def GetExceptions(
        self, request: tmaster_pb2.ExceptionsRequest, context: _Context
    ) -> tmaster_pb2.ExceptionsReply:
        """The exceptions that are kept, the latest last."""
        await self._active(context)
        exceptions = matching_exceptions(self._metrics.exceptions.to_proto(), request)
        return tmaster_pb2.ExceptionsReply(exceptions=exceptions)

    async def GetExceptionSummary(
        self, request: tmaster_pb2.ExceptionsRequest, context: _Context
    ) -> tmaster_pb2.ExceptionSummaryReply:
        """The same by class of error, the most frequent first."""
        await self._active(context)
        exceptions = matching_exceptions(self._metrics.exceptions.to_proto(), request)
        return tmaster_pb2.ExceptionSummaryReply(classes=summary(exceptions))

    async def SetLogLevel(self, request: tmaster_pb2.LogLevelRequest, context: _Context) -> loglevels_pb2.LogLevels:
        """Change the log level of a component or process. Durable before the reply; see `_log_levels`."""
        await self._active(context)
        try:
            check(request, targets(self._state.logical, self._state.packing))
            return await self._to_its_end(self._log_levels.set(request))
        except NotFoundError as e:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(e))
        except UsageError as e:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
        except StateError as e:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the log level was not changed: {e}")

    async def GetLogLevels(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> loglevels_pb2.LogLevels:
        """The levels that were changed at run time."""
        await self._active(context)
        try:
            return await self._log_levels.get()
        except StateError as e:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(e))

    async def _active(self, context: _Context) -> None:
        if self.started.is_set():
            return
        try:
            async with asyncio.timeout(ACTIVE_WAIT_S):
                await self.started.wait()
        except TimeoutError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this Topology Master is not the active one")

    async def _hello(self, context: _Context) -> tmaster_pb2.StmgrHello:
        first = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                first = await context.read()
        if not isinstance(first, tmaster_pb2.StmgrMessage) or not first.hello.location.id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must be a hello with a location")
        return first.hello

    async def _read(self, session: Session, context: _Context) -> None:
        while isinstance(message := await context.read(), tmaster_pb2.StmgrMessage):
            if message.HasField("heartbeat"):
                attached = frozenset(message.heartbeat.attached)
                self._feed(HeartbeatReceived(session.number, attached, time.monotonic()))
        session.close("its stream ended")

    async def _set_state(self, runtime: TopologyState, context: _Context) -> tmaster_pb2.StateReply:
        await self._active(context)
        try:
            await self._to_its_end(self._change_state(runtime))
        except HeronError as e:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the state was not changed: {e}")
        return tmaster_pb2.StateReply(state=runtime.name)

    async def _to_its_end(self, change: Coroutine[Any, Any, T]) -> T:
        """Make a change for a caller, who must not leave the state manager and us of two minds by giving up.

        So it is a task of ours, but what it fails with is the caller's: it would end this Topology Master.
        """

        async def outcome() -> T | HeronError:
            try:
                return await change
            except HeronError as e:
                return e

        result = await asyncio.shield(self._tasks.create_task(outcome()))
        if isinstance(result, HeronError):
            raise result
        return result

    async def _change_state(self, runtime: TopologyState) -> None:
        async with self._state_change:
            await asyncio.to_thread(self._write_state, runtime)
            log.info("the topology is %s", runtime.name)
            self._feed(StateChanged(runtime, time.monotonic()))
            if self._state.plan is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2 * SAVE_WAIT_S):
                        await self._plan_published.wait()

    # -- events and effects --------------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        before = self._state
        self._state, effects = step(before, event)
        for id in self._state.stmgrs.keys() - before.stmgrs.keys():
            log.info("%s registered, %d missing", id, len(self._state.missing))
        for id in before.stmgrs.keys() - self._state.stmgrs.keys():
            log.warning("%s is lost", id)
        self._apply(effects)

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case PublishPlan():
                    for flag in (self._plan_saved, self._plan_published):
                        flag.clear()
                    for flag in (self._plan_unsaved, self._plan_made):
                        flag.set()
                case SendPlan():
                    # One that is not published yet will be sent to everybody when it is.
                    if effect.plan.version <= self._published_version:
                        self._sessions.offer([effect.session], effect.plan)
                case CloseSession():
                    log.warning("the stream of %s is closed: %s", effect.stmgr_id, effect.reason)
                    self._sessions.close(effect.session, effect.reason)

    async def _save(self) -> None:
        """Save the newest plan whenever there is one, for as long as it takes."""
        while True:
            await self._plan_unsaved.wait()
            self._plan_unsaved.clear()
            while (plan := self._state.plan) is not None and plan.version > self._saved_version:
                try:
                    await asyncio.to_thread(
                        self._statemgr.set, Kind.PPLANS, self._topology, plan.to_proto().SerializeToString()
                    )
                    self._saved_version = plan.version
                except StateError as e:
                    log.warning("plan %d is not saved yet: %s", plan.version, e)
                    await asyncio.sleep(RETRY_S)
            self._plan_saved.set()

    async def _publish(self) -> None:
        """Send the newest plan to everybody once it is saved, or after SAVE_WAIT_S."""
        while True:
            await self._plan_made.wait()
            self._plan_made.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAVE_WAIT_S):
                    await self._plan_saved.wait()
            plan = self._state.plan
            assert plan is not None
            receivers = self._state.receivers(plan)
            log.info("plan %d goes to %d of %d Stream Managers", plan.version, len(receivers), len(plan.stmgrs))
            self._sessions.offer(receivers, plan)
            self._published_version = plan.version
            self._plan_published.set()

    async def _watch_time(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._timeout_s / 4))
            self._feed(TimePassed(time.monotonic()))

    # -- state manager -------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _listen(self) -> AsyncIterator[None]:
        grpc_server = server(self._token)
        tmaster_pb2_grpc.add_TmasterServicer_to_server(self, grpc_server)  # type: ignore[no-untyped-call]  # generated
        port = grpc_server.add_insecure_port(f"{self._host}:0")
        self._location = state_pb2.TmasterLocation(
            topology=self._topology,
            topology_id=self._launch.topology_id,
            host=self._host,
            port=port,
            pid=os.getpid(),
        ).SerializeToString()
        await grpc_server.start()
        log.info("Topology Master of %s listens at %s:%d", self._topology, self._host, port)
        try:
            yield
        finally:
            await grpc_server.stop(grace=None)

    async def _watch(self, kind: Kind, changed: Callable[[bytes | None], None]) -> None:
        loop = asyncio.get_running_loop()

        def notify(value: bytes | None) -> None:  # in a thread of the state manager
            loop.call_soon_threadsafe(lambda: changed(value))

        await asyncio.to_thread(self._statemgr.watch, kind, self._topology, notify)

    def _on_node(self, _value: bytes | None) -> None:
        self._node_seen.set()

    async def _take_node(self) -> None:
        """Return as the owner of the ephemeral node; a standby waits until its owner is gone."""
        waiting = False
        while True:
            self._node_seen.clear()
            try:
                if await asyncio.to_thread(self._owns_node):
                    log.info("this Topology Master is the active one")
                    return
                if not waiting:
                    log.info("another Topology Master is active, this one stands by")
                waiting = True
            except StateError as e:
                log.warning("cannot take the node: %s", e)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._node_seen.wait()

    async def _hold_node(self) -> None:
        """Make the node again when it vanished (a new session); end when somebody else has it."""
        while True:
            # Also without news: a node that comes and goes between two looks of the state manager makes none.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._node_seen.wait()
            self._node_seen.clear()
            try:
                owns = await asyncio.to_thread(self._owns_node)
            except StateError as e:
                log.warning("cannot look after the node: %s", e)
                await asyncio.sleep(RETRY_S)
                self._node_seen.set()
                continue
            if not owns:
                raise StateError(f"another Topology Master has taken {self._topology!r}: this one ends")

    def _owns_node(self) -> bool:
        """Create the node unless it exists; whether it is ours."""
        found = self._statemgr.get(Kind.TMASTERS, self._topology)
        if found is not None:
            return found == self._location
        try:
            self._statemgr.create(Kind.TMASTERS, self._topology, self._location, ephemeral=True)
        except AlreadyExistsError:
            return self._statemgr.get(Kind.TMASTERS, self._topology) == self._location
        return True

    async def _read_back(self) -> list[Effect]:
        topology, packing, saved = await asyncio.to_thread(self._read_all)
        self._state, effects = start(
            LogicalPlan.from_proto(topology),
            packing,
            TopologyState(topology.state),
            saved,
            timeout_s=self._timeout_s,
        )
        self._saved_version = self._published_version = saved.version if saved is not None else 0
        log.info("%s is %s, plan %d", self._topology, self._state.runtime.name, self._state.version)
        return effects

    def _read_all(self) -> tuple[topology_pb2.Topology, PackingPlan, PhysicalPlan | None]:
        topology = self._read_topology()
        packing = self._statemgr.get(Kind.PACKINGPLANS, self._topology)
        if packing is None:
            raise NotFoundError(f"the state manager has no packing plan of {self._topology!r}: submit it again")
        value = self._statemgr.get(Kind.PPLANS, self._topology)
        saved = PhysicalPlan.from_proto(plan_pb2.PhysicalPlan.FromString(value)) if value is not None else None
        if saved is not None and saved.logical.id != topology.id:
            saved = None  # left behind by an earlier topology of the same name
        return topology, PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(packing)), saved

    def _read_topology(self) -> topology_pb2.Topology:
        value = self._statemgr.get(Kind.TOPOLOGIES, self._topology)
        if value is None:
            raise NotFoundError(f"the state manager has no topology {self._topology!r}: submit it again")
        return topology_pb2.Topology.FromString(value)

    def _write_state(self, runtime: TopologyState) -> None:
        topology = self._read_topology()
        topology.state = runtime.name  # type: ignore[assignment]  # the setter takes names
        self._statemgr.set(Kind.TOPOLOGIES, self._topology, topology.SerializeToString())

    def _on_packing(self, value: bytes | None) -> None:
        self._packing_value = value
        self._packing_seen.set()

    async def _follow_packing(self) -> None:
        """Put every new packing plan to the test, and then into the state."""
        while True:
            try:
                await self._watch(Kind.PACKINGPLANS, self._on_packing)
                break
            except StateError as e:
                log.warning("cannot watch the packing plan: %s", e)
                await asyncio.sleep(RETRY_S)
        while True:
            await self._packing_seen.wait()
            self._packing_seen.clear()
            value = self._packing_value
            if value is None:
                continue  # the topology is being killed
            try:
                topology = await asyncio.to_thread(self._read_topology)
                packing = PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(value))
                logical = LogicalPlan.from_proto(topology)
                check_fits(logical, packing)
            except StateError as e:
                log.warning("cannot read the topology of the new packing plan: %s", e)
                await asyncio.sleep(RETRY_S)
                self._packing_seen.set()
            except (TopologyError, NotFoundError) as e:
                log.error("the new packing plan is not used: %s", e)
            else:
                self._feed(PackingChanged(logical, packing, time.monotonic()))

    # -- metrics -------------------------------------------------------------------------------------------------------

    def _collect(self) -> list[metrics_pb2.Metric]:
        values = {
            "__plan-version": self._state.version,
            "__registered-stmgr-count": len(self._state.stmgrs),
            "__metrics-history-dropped": self._metrics.history.dropped,
        }
        return [metrics_pb2.Metric(name=n, value=v, kind=metrics_pb2.Metric.GAUGE) for n, v in values.items()]
