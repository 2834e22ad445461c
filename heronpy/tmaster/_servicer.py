"""What a Topology Master answers: gRPC calls become events for its core, and queries of what is known."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from typing import Any, Protocol

import grpc
import grpc.aio

from heronpy.errors import FencedError, HeronError, NotFoundError, StateError, UntrustedError, UsageError
from heronpy.health import Health
from heronpy.plan import PackingPlan, StmgrLocation, TopologyState
from heronpy.proto import loglevels_pb2, metrics_pb2, plan_pb2, tmaster_pb2, tmaster_pb2_grpc
from heronpy.rpc import caller_of
from heronpy.tmaster._checkpoint_views import checkpoint_status
from heronpy.tmaster._core import Core
from heronpy.tmaster._core_events import Event
from heronpy.tmaster._enrolling import SkewError
from heronpy.tmaster._exceptions import matching_exceptions, summary
from heronpy.tmaster._log_levels import LogLevelKeeper, check, targets
from heronpy.tmaster._sessions import Session, Sessions
from heronpy.tmaster._state import HeartbeatReceived, SessionEnded, StmgrRegistered
from heronpy.tmaster._status import Metrics, status
from heronpy.tmaster.checkpoints import Phase, instance_reported, stmgr_reported

log = logging.getLogger(__name__)

ACTIVE_WAIT_S = 5.0
"""How long a call waits for a Topology Master that is still starting, or is a standby."""

_Context = grpc.aio.ServicerContext[Any, Any]
_ENROLL_CODES: dict[type[HeronError], grpc.StatusCode] = {
    FencedError: grpc.StatusCode.FAILED_PRECONDITION,
    UntrustedError: grpc.StatusCode.PERMISSION_DENIED,
    SkewError: grpc.StatusCode.OUT_OF_RANGE,
    UsageError: grpc.StatusCode.INVALID_ARGUMENT,
}
"""Where asking again does not help. UntrustedError: also if the authority's key is readable by others."""


class Master(Protocol):
    """The Topology Master behind the calls."""

    started: asyncio.Event
    """Set while it is the active one."""
    core: Core
    sessions: Sessions
    metrics: Metrics
    log_levels: LogLevelKeeper
    started_ms: int

    def feed(self, event: Event) -> None:
        """Have the core take an event."""

    async def request_state(self, runtime: TopologyState) -> None:
        """Activate or deactivate the topology. Goes on when the caller gives up.

        Raises:
            StateError: it was not changed.
        """

    async def request_update(self, base: PackingPlan, packing: PackingPlan, timeout_s: float) -> None:
        """Put another packing plan in the place of one. Goes on when the caller gives up.

        Raises:
            StateError: nothing was changed, as far as is known.
        """

    async def take_checkpoint(self, *, divisible: bool, timeout_s: float) -> int:
        """Take a checkpoint; returns its id when all tasks know that it is committed.

        Raises:
            StateError: there is none.
        """

    def assess_health(self) -> Health:
        """How the topology is now."""

    async def enroll(self, caller: str, request: tmaster_pb2.EnrollRequest) -> bytes:
        """The certificate of a container.

        Raises:
            HeronError: it is not given, as `Enrollment.certificate` says.
        """

    async def run_shielded(self, change: Any) -> Any:
        """Make a change for a caller. Goes on when the caller gives up."""


class TmasterServicer(tmaster_pb2_grpc.TmasterServicer):
    """The gRPC service of one Topology Master."""

    def __init__(self, master: Master, *, hello_timeout_s: float) -> None:
        self._master = master
        self._hello_timeout_s = hello_timeout_s

    async def Register(self, _requests: Any, context: _Context) -> None:
        """The stream of one Stream Manager: its hello, heartbeats and reports in, plans and orders out."""
        await self._active(context)
        hello = await self._hello(context)
        session = self._master.sessions.open()
        try:
            self._master.feed(
                StmgrRegistered(
                    session.number,
                    StmgrLocation.from_proto(hello.location),
                    hello.plan_version,
                    time.monotonic(),
                    hello.restore_epoch,
                    tuple(map(StmgrLocation.from_proto, hello.peers)),
                )
            )
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(session, hello.location.id, context))
                while (message := await session.next_message()) is not None:
                    await context.write(message)
                reading.cancel()
        finally:
            self._master.sessions.ended(session)
            self._master.feed(SessionEnded(session.number, time.monotonic()))
        await context.abort(grpc.StatusCode.ABORTED, session.closed_because)

    async def _hello(self, context: _Context) -> tmaster_pb2.StmgrHello:
        first = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._hello_timeout_s):
                first = await context.read()
        if not isinstance(first, tmaster_pb2.StmgrMessage) or not first.hello.location.id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must be a hello with a location")
        if first.hello.location.id != caller_of(context):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "a Stream Manager registers itself alone")
        return first.hello

    async def _read(self, session: Session, stmgr_id: str, context: _Context) -> None:
        while isinstance(message := await context.read(), tmaster_pb2.StmgrMessage):
            if session.closed_because:
                return  # another session of this Stream Manager may be open already
            if (event := _event(session.number, stmgr_id, message)) is not None:
                self._master.feed(event)
        session.close("its stream ended")

    async def Enroll(self, request: tmaster_pb2.EnrollRequest, context: _Context) -> tmaster_pb2.EnrollReply:
        """The certificate of a container. FAILED_PRECONDITION: this is not its newest incarnation."""
        await self._active(context)
        caller = caller_of(context)
        try:
            return tmaster_pb2.EnrollReply(certificate=await self._master.enroll(caller, request))
        except HeronError as e:
            log.warning("%s is given no certificate: %s", caller, e)
            await context.abort(_ENROLL_CODES.get(type(e), grpc.StatusCode.UNAVAILABLE), str(e))

    async def Activate(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> tmaster_pb2.StateReply:
        """Let the spouts emit. The state is durable, and a plan with it on its way, before the reply."""
        return await self._set_state(TopologyState.RUNNING, context)

    async def Deactivate(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> tmaster_pb2.StateReply:
        """Let the spouts rest. The state is durable, and a plan with it on its way, before the reply."""
        return await self._set_state(TopologyState.PAUSED, context)

    async def Update(self, request: tmaster_pb2.UpdateRequest, context: _Context) -> tmaster_pb2.StateReply:
        """Run by another packing plan. It is durable before the reply, and in force when its containers are there."""
        await self._active(context)
        base, packing = PackingPlan.from_proto(request.base), PackingPlan.from_proto(request.packing)
        try:
            await self._master.request_update(base, packing, request.timeout_s)
        except HeronError as e:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(e))
        return tmaster_pb2.StateReply(state=self._master.core.state.runtime.name)

    async def _set_state(self, runtime: TopologyState, context: _Context) -> tmaster_pb2.StateReply:
        await self._active(context)
        try:
            await self._master.request_state(runtime)
        except HeronError as e:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the state was not changed: {e}")
        return tmaster_pb2.StateReply(state=runtime.name)

    async def TakeCheckpoint(
        self, request: tmaster_pb2.CheckpointRequest, context: _Context
    ) -> tmaster_pb2.CheckpointReply:
        """A checkpoint now. FAILED_PRECONDITION if there is none, with the reason."""
        await self._active(context)
        try:
            checkpoint = await self._master.take_checkpoint(
                divisible=request.divisible, timeout_s=request.timeout_ms / 1000
            )
        except StateError as e:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(e))
        return tmaster_pb2.CheckpointReply(checkpoint=checkpoint)

    async def GetStatus(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> tmaster_pb2.StatusReply:
        """All that is known of the topology now."""
        await self._active(context)
        master = self._master
        reply = status(
            master.core.state,
            master.metrics,
            master.assess_health(),
            pid=os.getpid(),
            started_ms=master.started_ms,
            now_s=time.monotonic(),
        )
        reply.stop_reason, reply.code_failure = master.core.stop_reason, master.core.code_failure
        if master.core.checkpoints is not None:
            reply.checkpoints.CopyFrom(
                checkpoint_status(master.core.checkpoints.coordinator, time.monotonic(), _now_ms())
            )
            if master.core.state.restore_epoch > reply.checkpoints.restore_epoch:
                reply.checkpoints.phase = Phase.RAISING.value  # the coordinator is notified when the plan is sent
        return reply

    async def GetHealth(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> tmaster_pb2.Health:
        """How the topology is, in one word, with the reasons."""
        await self._active(context)
        return self._master.assess_health().to_proto()

    async def GetPhysicalPlan(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> plan_pb2.PhysicalPlan:
        """The plan in force. NOT_FOUND before there is one."""
        await self._active(context)
        state = self._master.core.state
        if state.plan is None:
            missing = ", ".join(state.missing[:10])
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no physical plan yet: waiting for {missing}")
        return state.plan.to_proto()

    async def PublishMetrics(self, request: metrics_pb2.MetricsReports, context: _Context) -> metrics_pb2.PublishReply:
        """Take in reports. Repeated or overtaken ones change nothing."""
        await self._active(context)
        now_s, now_ms = time.monotonic(), _now_ms()
        for report in request.reports:
            self._master.metrics.add(report, now_s, now_ms)
        if request.prometheus:
            self._master.metrics.prometheus[caller_of(context)] = request.prometheus
        return metrics_pb2.PublishReply()

    async def GetMetrics(self, request: tmaster_pb2.MetricsRequest, context: _Context) -> tmaster_pb2.MetricsReply:
        """Metrics of the last three hours, or of all time. INVALID_ARGUMENT if that is too much for one reply."""
        await self._active(context)
        try:
            return self._master.metrics.answer(request, _now_ms())
        except UsageError as e:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))

    async def GetExceptions(
        self, request: tmaster_pb2.ExceptionsRequest, context: _Context
    ) -> tmaster_pb2.ExceptionsReply:
        """The exceptions that are kept, the latest last."""
        await self._active(context)
        exceptions = matching_exceptions(self._master.metrics.exceptions.to_proto(), request)
        return tmaster_pb2.ExceptionsReply(exceptions=exceptions)

    async def GetExceptionSummary(
        self, request: tmaster_pb2.ExceptionsRequest, context: _Context
    ) -> tmaster_pb2.ExceptionSummaryReply:
        """The same by class of error, the most frequent first."""
        await self._active(context)
        exceptions = matching_exceptions(self._master.metrics.exceptions.to_proto(), request)
        return tmaster_pb2.ExceptionSummaryReply(classes=summary(exceptions))

    async def SetLogLevel(self, request: tmaster_pb2.LogLevelRequest, context: _Context) -> loglevels_pb2.LogLevels:
        """Change the log level of a component or process. Durable before the reply; see `_log_levels`."""
        await self._active(context)
        state = self._master.core.state
        try:
            check(request, targets(state.logical, state.packing))
            levels: loglevels_pb2.LogLevels = await self._master.run_shielded(self._master.log_levels.set(request))
        except NotFoundError as e:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(e))
        except UsageError as e:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
        except StateError as e:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the log level was not changed: {e}")
        return levels

    async def GetLogLevels(self, _request: tmaster_pb2.TopologyRequest, context: _Context) -> loglevels_pb2.LogLevels:
        """The levels that were changed at run time."""
        await self._active(context)
        try:
            return await self._master.log_levels.get()
        except StateError as e:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(e))

    async def _active(self, context: _Context) -> None:
        if self._master.started.is_set():
            return
        try:
            async with asyncio.timeout(ACTIVE_WAIT_S):
                await self._master.started.wait()
        except TimeoutError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this Topology Master is not the active one")


def _event(session: int, stmgr_id: str, message: tmaster_pb2.StmgrMessage) -> Event | None:
    """What a message of a Stream Manager is for the core."""
    now_s = time.monotonic()
    match message.WhichOneof("message"):
        case "heartbeat":
            heartbeat = message.heartbeat
            attached, waiting = frozenset(heartbeat.attached), frozenset(heartbeat.waiting)
            return HeartbeatReceived(session, attached, now_s, heartbeat.stop_reason, waiting)
        case "report":
            return stmgr_reported(stmgr_id, message.report, now_s)
        case "of_instance":
            return instance_reported(message.of_instance, now_s)
        case _:
            return None


def _now_ms() -> int:
    return int(time.time() * 1000)
