"""The Topology Master's process: its core, the state manager and the clock beside it, and the gRPC service before it.

Order of things: listen, acquire the leadership (a standby waits here), read back what the state manager holds, answer.
Everything that is decided is decided by `Core`; here its effects become work.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar, assert_never

from heronpy.errors import HeronError, StateError
from heronpy.health import Health
from heronpy.metricsmgr import Reporter
from heronpy.plan import PackingPlan, TopologyState, state_owners
from heronpy.proto import metrics_pb2, state_pb2, tmaster_pb2, tmaster_pb2_grpc
from heronpy.rpc import CONTROL_BYTES_MAX, listen
from heronpy.runtime import Launch, essential
from heronpy.statemgr import Kind, StateManager, follow, open_statemgr
from heronpy.tmaster._checkpoint_calls import CheckpointAsked, RequestWithdrawn
from heronpy.tmaster._checkpoint_views import CheckpointMetrics, checkpoint_progress
from heronpy.tmaster._checkpointing import KeepCopy, SendOrder
from heronpy.tmaster._core import Core
from heronpy.tmaster._core_events import Activated, Effect, Event, Finish, Reply, StateRequested
from heronpy.tmaster._enrolling import Enrollment
from heronpy.tmaster._health import HealthMonitor, health_metrics
from heronpy.tmaster._log_levels import LogLevelKeeper
from heronpy.tmaster._manifests import Manifests, RestoreHold
from heronpy.tmaster._servicer import TmasterServicer
from heronpy.tmaster._sessions import Sessions
from heronpy.tmaster._state import CloseSession, SendPlan, TimePassed
from heronpy.tmaster._status import Metrics
from heronpy.tmaster._store import NodeCopies, carry_out, gone_because
from heronpy.tmaster._store_effects import ClaimNode, NodeChanged, ReadNodes, StoreEffect, WriteNode
from heronpy.tmaster._update import UpdateRequested
from heronpy.tmaster.checkpoints import DiscardCheckpoints, FindIntact, WriteManifest

log = logging.getLogger(__name__)

TICK_S = 1.0
"""Time passes at least so often."""
ENROLL = "/heronpy.Tmaster/Enroll"
"""What a host may call whose container has no certificate yet."""
_PAUSE_MIN_S = 0.01
_COPY_DIR = "state"

T = TypeVar("T")


class TopologyMaster:
    """The Topology Master of one topology, as a service. `started` is set when it is the active one."""

    def __init__(self, launch: Launch, container: int = 0) -> None:
        self.started = asyncio.Event()
        self.started_ms = int(time.time() * 1000)
        self.sessions = Sessions()
        self.metrics = Metrics(launch.config.tmaster, launch.config.metrics.interval_ms / 1000, self.started_ms)
        self._launch = launch
        self._topology = launch.topology
        self._security = launch.security("tmaster")
        self._timeout_s = launch.config.tmaster.stmgr_timeout_ms / 1000
        self._manifests = Manifests(launch, container, self.feed)
        self._restore_hold = RestoreHold()
        self._copies = NodeCopies(launch.container_dir(container) / _COPY_DIR)
        self._health = HealthMonitor(launch.config.metrics.interval_ms / 1000, time.monotonic())
        self._reporter = Reporter(
            launch, container=container, source="tmaster", component="__tmaster__", collect=self._collect
        )
        self._checkpoint_metrics = CheckpointMetrics()
        self._enrollment = Enrollment(launch)
        self._ending = False
        self._wake = asyncio.Event()
        self._finished: asyncio.Future[HeronError] = asyncio.get_running_loop().create_future()
        self._calls: dict[int, asyncio.Future[str]] = {}
        self._call_numbers = itertools.count(1)
        # Set before `started`, which every call waits for.
        self.core: Core
        self.log_levels: LogLevelKeeper
        self._statemgr: StateManager
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            StateError: the state manager cannot be reached at the start, or another Topology Master is the leader.
            NotFoundError: the state manager has no topology, or no packing plan of it.
        """
        self._statemgr = await asyncio.to_thread(open_statemgr, self._launch.statemgr, parents=False)
        self.log_levels = LogLevelKeeper(self._statemgr, self._topology, self._write)
        try:
            async with self._listen():
                await self._serve()
        finally:
            await asyncio.to_thread(self._statemgr.close)

    async def _serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for work in (self._until_finished(), self._watch_time(), self._reporter.run()):
                    self._start(work)
                for kind in (Kind.TMASTERS, Kind.EPOCHS):
                    self._start(self._follow(kind))
                self.feed(TimePassed(time.monotonic()))
        except BaseExceptionGroup:
            if self._finished.done():
                raise self._finished.result() from None
            raise

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(essential(work), name=f"tmaster/{getattr(work, '__qualname__', work)}")

    async def _until_finished(self) -> None:
        try:
            raise await asyncio.shield(self._finished)
        finally:
            self._ending = True

    async def _follow(self, kind: Kind) -> None:
        async for value in follow(self._statemgr, kind, self._topology):
            self.feed(NodeChanged(kind, value, time.monotonic()))

    async def _watch_time(self) -> None:
        tick_s = min(TICK_S, self._timeout_s / 4)
        next_s = time.monotonic() + tick_s
        while True:
            self._wake.clear()  # before: what is due already is waited for, too, or nothing else would have a turn
            due_s = min(next_s, self.core.due_s if self.core.due_s is not None else next_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(_PAUSE_MIN_S, due_s - time.monotonic())):
                    await self._wake.wait()
            now_s = time.monotonic()
            if now_s >= due_s:
                next_s = now_s + tick_s
                self.feed(TimePassed(now_s))

    # -- what the service asks for -------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Have the core take an event, and carry out what it decides."""
        if self._ending:
            return  # streams that end while this process does are not events
        for effect in self.core.step(event):
            self._carry_out(effect)
        self._wake.set()

    async def request_state(self, runtime: TopologyState) -> None:
        """Activate or deactivate the topology. Goes on when the caller gives up.

        Raises:
            StateError: it was not changed.
        """
        await self._request(lambda call, now_s: StateRequested(call, runtime, now_s))

    async def request_update(self, base: PackingPlan, packing: PackingPlan, timeout_s: float) -> None:
        """Put another packing plan in the place of one. When the caller gives up before it is written, it is not.

        Raises:
            StateError: nothing was changed, as far as is known.
        """
        await self._request(lambda call, now_s: UpdateRequested(call, base, packing, timeout_s, now_s))

    async def _request(self, event: Callable[[int, float], Event]) -> None:
        call = next(self._call_numbers)
        reply = self._calls[call] = asyncio.get_running_loop().create_future()
        self.feed(event(call, time.monotonic()))
        try:
            error = await reply
        except asyncio.CancelledError:  # the caller has gone: no checkpoints are tried for it, nor do spouts rest
            self._calls.pop(call, None)
            self.feed(RequestWithdrawn(call, time.monotonic()))
            raise
        if error:
            raise StateError(error)

    async def take_checkpoint(self, *, divisible: bool, timeout_s: float) -> int:
        """Take a checkpoint; returns its id when all tasks know that it is committed.

        Args:
            divisible: Any number of tasks can restore it.
            timeout_s: For how long it is tried.

        Raises:
            StateError: there is none.
        """
        await self._request(lambda call, now_s: CheckpointAsked(call, divisible, timeout_s, now_s))
        assert self.core.checkpoints is not None, "it has taken one"
        return self.core.checkpoints.coordinator.record.newest

    async def run_shielded(self, change: Coroutine[Any, Any, T]) -> T:
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

    # -- effects -------------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ClaimNode() | ReadNodes() | WriteNode():
                self._tasks.create_task(self._ask(effect), name=f"tmaster/{type(effect).__name__}")
            case SendPlan(session, plan):
                self.sessions.send(session, plan)
            case SendOrder(session, order):
                if (for_s := self._restore_hold.ordered(order, time.monotonic())) is not None:
                    self._tasks.create_task(self._manifests.hold_merges(for_s), name="tmaster/hold-merges")
                self.sessions.order(session, order)
            case WriteManifest() | DiscardCheckpoints() | FindIntact():
                running = self.core.state.plan if isinstance(effect, WriteManifest) else None
                owners = () if running is None else state_owners(running.logical)  # of it, not of what is wanted
                self._tasks.create_task(
                    self._manifests.carry_out(effect, owners), name=f"tmaster/{type(effect).__name__}"
                )
            case CloseSession(session, stmgr_id, reason):
                log.warning("the stream of %s is closed: %s", stmgr_id, reason)
                self.sessions.close(session, reason)
            case Activated(kinds):
                for kind in kinds:
                    self._start(self._follow(kind))
                self._start(self.log_levels.run())
                self.started.set()
            case Reply(call, error):
                reply = self._calls.pop(call, None)
                if reply is not None and not reply.done():
                    reply.set_result(error)
            case KeepCopy(kind, value):
                self._copies.keep(kind, value)
            case Finish(error):
                self.started.clear()
                if not self._finished.done():
                    self._finished.set_result(error)
            case _:
                assert_never(effect)

    async def _ask(self, effect: StoreEffect) -> None:
        registered = self.core.active and bool(self.core.state.stmgrs)
        last = self.core.execution
        refuse = functools.partial(gone_because, self._statemgr, self._launch, registered=registered, last=last)
        self.feed(
            await asyncio.to_thread(carry_out, self._statemgr, self._topology, effect, refuse, self._launch.topology_id)
        )

    async def _write(self, kind: Kind, value: bytes) -> None:
        """Write a node for as long as this Topology Master is the leader.

        Raises:
            StateError: it was not written, as far as is known.
        """
        fence = self.core.leadership.fence
        if not await asyncio.to_thread(
            self._statemgr.set_if, kind, self._topology, value, expected=fence, of=Kind.EPOCHS
        ):
            self.core.leadership.check()
            self._wake.set()
            raise StateError("this Topology Master's term has changed")

    @contextlib.asynccontextmanager
    async def _listen(self) -> AsyncIterator[None]:
        advertise = self._launch.advertised_host()
        listener = listen(
            self._launch.bind_address,
            advertise,
            self._security,
            newest=self._newest_incarnation,
            bootstraps_to=frozenset((ENROLL,)),
            message_bytes_max=CONTROL_BYTES_MAX,
        )
        grpc_server = listener.server
        servicer = TmasterServicer(self, hello_timeout_s=self._timeout_s)
        tmaster_pb2_grpc.add_TmasterServicer_to_server(servicer, grpc_server)  # type: ignore[no-untyped-call]  # generated
        location = state_pb2.TmasterLocation(
            topology=self._topology,
            topology_id=self._launch.topology_id,
            host=listener.host,
            port=listener.port,
            pid=os.getpid(),
        )
        self.core = Core(
            topology=self._topology,
            topology_id=self._launch.topology_id,
            location=location.SerializeToString(),
            stmgr_timeout_s=self._timeout_s,
            retained=self._launch.config.checkpoints.retained,
            copy=self._copies.load(),
        )
        await grpc_server.start()
        log.info("Topology Master of %s listens at %s", self._topology, listener.address)
        try:
            yield
        finally:
            await grpc_server.stop(grace=None)

    def _newest_incarnation(self, container: int) -> int:
        known = self.core.state.known.get(f"stmgr-{container}") if self.core.active else None
        return max(self._enrollment.newest(container), known.container_incarnation if known is not None else 0)

    async def enroll(self, caller: str, request: tmaster_pb2.EnrollRequest) -> bytes:
        """The certificate of a container: see `Enrollment`."""
        return await self._enrollment.certificate(self._statemgr, caller, request)

    def assess_health(self) -> Health:
        """How the topology is now."""
        now_ms, now_s = int(time.time() * 1000), time.monotonic()
        checkpoints = self.core.checkpoints
        fallback = checkpoints.coordinator.fallback if checkpoints is not None else None
        return self._health.health(
            self.core.state,
            self.metrics,
            now_s,
            now_ms,
            stop_reason=self.core.stop_reason,
            state_problem=fallback.problem if fallback is not None else "",
            state_fallback=fallback.recent(now_s) if fallback is not None else "",
            checkpoints=checkpoint_progress(checkpoints.coordinator, now_s) if checkpoints is not None else None,
        )

    def _collect(self) -> list[metrics_pb2.Metric]:
        if not self.core.active:
            return []
        values = {
            "__plan-version": self.core.state.version,
            "__registered-stmgr-count": len(self.core.state.stmgrs),
            "__metrics-history-dropped": self.metrics.history.dropped if self.metrics.reported else 0,
            **health_metrics(self.assess_health()),
        }
        found = [metrics_pb2.Metric(name=n, value=v, kind=metrics_pb2.Metric.GAUGE) for n, v in values.items()]
        if self.core.checkpoints is not None:
            found += self._checkpoint_metrics.collect(self.core.checkpoints.coordinator, time.monotonic())
        return found
