"""The scheduler service of one topology: keeps its containers running and does what the command line asks for."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import IO, Any, TypeVar

import grpc
import grpc.aio

from heron_scheduler._certificates import issue_missing, keep_renewed
from heron_scheduler._engine_state import is_ours, remove_engine_state
from heron_scheduler._spi import ALL_CONTAINERS, Scheduler
from heronpy.errors import AlreadyExistsError, HeronError, NotFoundError
from heronpy.host import SERVICE, DirectoryWatch, HostProcess, PidFiles, end_submission, is_killed, service_record
from heronpy.plan import PackingPlan
from heronpy.proto import scheduler_pb2, scheduler_pb2_grpc, state_pb2
from heronpy.rpc import CONTROL_BYTES_MAX, listen
from heronpy.runtime import Launch, until_one_ends
from heronpy.security import CLI, TRACKER, container_identity
from heronpy.statemgr import Kind, follow, open_statemgr, opened, records

log = logging.getLogger(__name__)

TICK_S = 0.25
"""How soon the death of an executor is noticed."""
RETRY_S = 5.0
"""How soon what has failed of an update is tried again."""
_RECORD_TIMEOUT_S = 10.0
"""Until another service that begins has recorded itself, or one that was killed has ended."""
_POLL_S = 0.05
OPERATORS = frozenset({CLI, TRACKER, container_identity(0)})
"""Whose calls it answers: not those of containers that run user code."""

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]


class SchedulerService(scheduler_pb2_grpc.SchedulerServicer):
    """Calls a scheduler's methods one after the other, for gRPC callers and for the passing of time.

    Ends when it is cancelled, and then the containers go on, or when the topology was killed. `owner` is for clusters
    that must not outlive a test: when that process is gone, the topology is killed.
    """

    def __init__(self, launch: Launch, scheduler: Scheduler, *, owner: HostProcess | None = None) -> None:
        self.started = asyncio.Event()
        self._launch = launch
        self._scheduler = scheduler
        self._owner = owner
        # One method of the scheduler at a time: it starts and ends the same containers in all of them.
        self._turn = asyncio.Lock()
        self._killed = asyncio.Event()
        self._pids = PidFiles(launch.dir)
        self._plan: PackingPlan
        self._next: PackingPlan | None = None
        """What is being prepared."""
        self._wanted: PackingPlan
        self._scheduled: PackingPlan
        """Set before `started`. They differ while an update is carried out, or has failed."""
        self._failed: list[PackingPlan] = []
        """What was tried since the last that was carried out, and failed, wholly or partly."""
        self._retry_s = 0.0

    async def run(self) -> None:
        """Serve until cancelled or killed.

        Raises:
            AlreadyExistsError: the topology has a service already.
            NotFoundError: the topology has no packing plan, was killed, or is another submission's by now.
        """
        directory = DirectoryWatch(self._launch.dir)
        async with self._only_one():
            launch = self._launch
            security = launch.security("scheduler")
            listener = listen(
                launch.bind_address,
                launch.advertised_host(),
                security,
                callers=OPERATORS.__contains__,
                message_bytes_max=CONTROL_BYTES_MAX,
            )
            grpc_server = listener.server
            scheduler_pb2_grpc.add_SchedulerServicer_to_server(self, grpc_server)  # type: ignore[no-untyped-call]  # generated
            await grpc_server.start()
            try:
                self._plan, self._next = await asyncio.to_thread(self._register, listener.address)
                self._wanted = self._scheduled = self._with_next()
                await self._in_turn(self._schedule, self._wanted)
                end_submission(self._launch.dir)  # also if the submitter has died meanwhile
                self.started.set()
                await until_one_ends(
                    self._keep_running(directory), self._follow_plan(), self._follow_next(), keep_renewed(launch)
                )
            finally:
                await grpc_server.stop(grace=1.0)  # time for the reply to the kill

    async def Kill(self, request: scheduler_pb2.SchedulerRequest, context: Context) -> scheduler_pb2.SchedulerReply:
        """End the topology; answers when nothing of it but this service is left, and its state if that is to stay."""
        return await self._answer(context, self._kill(keep_state=request.keep_state))

    async def Restart(self, request: scheduler_pb2.RestartRequest, context: Context) -> scheduler_pb2.SchedulerReply:
        """Restart one container, or all; answers when the new executors run."""
        container = None if request.container == ALL_CONTAINERS else request.container
        return await self._answer(context, self._in_turn(self._scheduler.on_restart, container))

    async def JobLinks(self, request: scheduler_pb2.SchedulerRequest, context: Context) -> scheduler_pb2.SchedulerReply:
        """Where to look at the job; also the question whether the service is there."""
        return scheduler_pb2.SchedulerReply(job_links=self._scheduler.job_links())

    async def _keep_running(self, directory: DirectoryWatch) -> None:
        while not self._killed.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._killed.wait()
            if self._owner is not None and not self._owner.alive:
                log.info("the owner, pid %d, is gone: the topology is killed", self._owner.pid)
                await self._kill()
            elif why := directory.ended(time.monotonic()):
                # Executors end by the same sign. What the state manager has is left for `heron kill`: it may be that
                # a file system was unmounted, and the topology's owner wants to know what is lost.
                log.warning("%s: the containers are ended", why)
                await self._in_turn(self._scheduler.on_kill)
                return
            await self._in_turn(self._scheduler.on_tick)
            self._pids.retry()
            if time.monotonic() >= self._retry_s:
                await self._update()

    def _schedule(self, plan: PackingPlan) -> None:
        issue_missing(self._launch, (container.id for container in plan.containers))
        self._scheduler.on_schedule(plan)

    async def _follow_plan(self) -> None:
        """Start and end containers as the packing plan has it."""
        async with opened(self._launch.statemgr) as statemgr:
            async for value in follow(statemgr, Kind.PACKINGPLANS, self._launch.topology):
                if value is None:
                    continue  # killed, or the state manager has lost it: the Topology Master writes it again
                self._plan = records.readable(records.packing_plan, self._launch.topology, value, before=self._plan)
                await self._update()

    async def _follow_next(self) -> None:
        """Start containers that an update is going to need."""
        async with opened(self._launch.statemgr) as statemgr:
            async for value in follow(statemgr, Kind.NEXTPACKINGPLANS, self._launch.topology):
                topology = self._launch.topology
                self._next = records.readable(records.next_packing_plan, topology, value, before=self._next)
                await self._update()

    def _with_next(self) -> PackingPlan:
        return self._plan if self._next is None else self._plan.joined(self._next)

    async def _update(self) -> None:
        """Carry out the newest packing plan, unless that is done. What fails is tried again: all others follow it."""
        self._wanted = self._with_next()
        if self._wanted == self._scheduled and not self._failed:
            return
        try:
            await self._in_turn(self._carry_out_update)
        except (HeronError, OSError) as e:
            self._retry_s = time.monotonic() + RETRY_S
            log.error("the new packing plan is not carried out, trying again: %s", e)

    def _carry_out_update(self) -> None:
        plan = self._wanted
        if plan == self._scheduled and not self._failed:
            return
        log.info("the packing plan has changed: %d containers", len(plan.containers))
        issue_missing(self._launch, (container.id for container in plan.containers))
        before = self._running(plan)
        if plan not in self._failed:
            self._failed.append(plan)
        self._scheduler.on_update(before, plan)
        self._scheduled, self._failed = plan, []

    def _running(self, wanted: PackingPlan) -> PackingPlan:
        """What is to be taken for running: of what failed all that is to end, and nothing that is to run."""
        tried = [self._scheduled, *self._failed]
        maybe = {container.id: container for plan in reversed(tried) for container in plan.containers}
        return replace(
            self._scheduled,
            containers=tuple(
                container
                for id, container in sorted(maybe.items())
                if wanted.container(id) is None or all(plan.container(id) is not None for plan in tried)
            ),
        )

    async def _kill(self, *, keep_state: bool = False) -> None:
        loop = asyncio.get_running_loop()

        def kill() -> None:
            self._scheduler.on_kill()
            if not keep_state:
                remove_engine_state(self._launch)
            loop.call_soon_threadsafe(self._killed.set)  # also when no caller waits for the end any more

        await self._in_turn(kill)

    async def _in_turn(self, method: Callable[..., T], *args: Any) -> T | None:
        """Run a method to its end. A caller that goes away meanwhile ends neither the method nor its turn."""
        async with self._turn:
            if self._killed.is_set():
                return None
            work = asyncio.ensure_future(asyncio.to_thread(method, *args))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait((work,))
                if not work.cancelled() and (error := work.exception()):
                    log.error("%s, and its caller is gone: %s", getattr(method, "__name__", method), error)
                raise

    async def _answer(self, context: Context, work: Awaitable[None]) -> scheduler_pb2.SchedulerReply:
        try:
            await work
        except NotFoundError as e:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(e))
        except HeronError as e:
            log.error("%s", e)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(e))
        return scheduler_pb2.SchedulerReply()

    def _register(self, endpoint: str) -> tuple[PackingPlan, PackingPlan | None]:
        """Publish the address and read the plan, and what is being prepared: a service that died was starting that."""
        topology = self._launch.topology
        location = state_pb2.SchedulerLocation(
            topology=topology,
            endpoint=endpoint,
            pid=os.getpid(),
            job_link=next(iter(self._scheduler.job_links()), ""),
        )
        with contextlib.closing(open_statemgr(self._launch.statemgr, parents=False)) as statemgr:
            value = statemgr.get(Kind.PACKINGPLANS, topology)
            if value is None:
                raise NotFoundError(f"topology {topology} has no packing plan: it was not submitted, or it was killed")
            if not is_ours(statemgr, self._launch):  # whose plan and whose service these are
                raise NotFoundError(f"the state manager has another submission of {topology} than {self._launch.dir}")
            plan = records.packing_plan(topology, value)
            value = statemgr.get(Kind.NEXTPACKINGPLANS, topology)
            following = records.readable(records.next_packing_plan, topology, value, before=None)
            statemgr.set(Kind.SCHEDULERS, topology, location.SerializeToString())
        return plan, following

    @contextlib.asynccontextmanager
    async def _only_one(self) -> AsyncIterator[None]:
        deadline = time.monotonic() + _RECORD_TIMEOUT_S
        with (self._launch.dir / "scheduler.lock").open("w") as lock:
            while not _locked(lock):
                # One that has not said so begins, or ends: who has started this one asks that record who to wait for.
                record = service_record(self._launch)
                if (record is not None and not record.ended) or time.monotonic() > deadline:
                    raise AlreadyExistsError(f"topology {self._launch.topology} has a scheduler service already")
                await asyncio.sleep(_POLL_S)
            if is_killed(self._launch.dir):
                raise NotFoundError(f"topology {self._launch.topology} was killed")
            me = HostProcess.of(os.getpid())
            assert me is not None
            self._pids.started(SERVICE, me)
            yield


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
