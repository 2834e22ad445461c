"""A Heron Instance: the gateway (this asyncio loop) and the task execution thread.

The gateway holds the one stream to the container's Stream Manager. User code may block for as long as it likes: frames,
plans and metrics go on moving, as far as the queues between the threads have room.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import grpc.aio

from heronpy.api import global_metrics
from heronpy.config import takes_checkpoints
from heronpy.errors import HeronError
from heronpy.instance._capacity import QueueCapacity, TimedCapacity
from heronpy.instance._channel import ThreadChannel
from heronpy.instance._core import Signal, TaskCore, TaskFailed
from heronpy.instance._intake import Intake
from heronpy.instance._metrics import GAUGE, TaskMetrics
from heronpy.instance._progress import ProgressMeter
from heronpy.instance._prompter import Prompter
from heronpy.instance._thread import TaskThread, apply_plan
from heronpy.metricsmgr import Reporter
from heronpy.plan import PhysicalPlan
from heronpy.proto import metrics_pb2, stmgr_pb2
from heronpy.rpc import channel, read_message, wait_connected, write_message
from heronpy.runtime import Launch, StreamLost, TaskProgress, essential, until_one_ends, use_huge_pages
from heronpy.shown import said, traceback_of

if TYPE_CHECKING:
    from heronpy.checkpoints import Saved
    from heronpy.instance._checkpointed import CheckpointedTask
    from heronpy.instance._reading_ahead import ReadingAhead
from heronpy.usersecrets import NO_SECRETS, Secrets

log = logging.getLogger(__name__)

ATTACH = "/heronpy.Stmgr/Attach"
GLOBAL_METRICS_EVERY_S = 1
READ_AHEAD_BYTES = 64 << 10


class InstanceFailed(HeronError):
    """The task ended with an error. The process ends, and is started again."""


class Instance:
    """One instance of one component."""

    def __init__(
        self, launch: Launch, container: int, instance_id: str, *, code: str = "", secrets: Secrets = NO_SECRETS
    ) -> None:
        """Make an instance.

        Args:
            launch: Of the topology.
            container: Its container.
            instance_id: `container_<n>_<component>_<task>`.
            code: The version of the user's code that this process has; empty: what was submitted.
            secrets: Of the user's code.
        """
        self.started = asyncio.Event()
        self._launch = launch
        self._config = launch.config.instance
        self._container = container
        self._id = instance_id
        self._code = code
        self._security = launch.security(instance_id)
        self._secrets = secrets
        self._component, self._task_id = component, _ = _parse(instance_id)
        self._channel = ThreadChannel(self._config)
        self._signal = Signal()
        self._metrics = TaskMetrics()
        self._progress = ProgressMeter(self._config)
        self._thread: TaskThread | None = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[BaseException | None] = self._loop.create_future()
        self._intake = Intake()
        self._prompter = Prompter(self._config, self._channel, self._signal, self._progress, lambda: self._thread)
        self._checkpoints: CheckpointedTask | None = None
        """With checkpoints: what goes through the gateway, and drives the thread."""
        self._checkpoints_run: asyncio.Task[None] | None = None
        self._reading_ahead: ReadingAhead | None = None
        """With checkpoints: also before there is a plan."""
        self._tasks: asyncio.TaskGroup | None = None
        self._leaving = False
        """The task ends or has ended: nothing more is read; it waits at the Stream Manager for the next incarnation."""
        self._not_attached = ""
        """Why, since it was attached last."""
        self._capacity = QueueCapacity(self._config)
        self._timed: TimedCapacity | None = None
        """With checkpoints, instead."""
        self._packets = {"received": 0, "sent": 0, "received_bytes": 0, "sent_bytes": 0}
        self._collected: dict[str, int] = {}
        self._reporter = Reporter(
            launch, container=container, source=instance_id, component=component, collect=self._collect
        )

    async def run(self) -> None:
        """Serve until cancelled, or until the task thread ends.

        Raises:
            InstanceFailed: user code failed and the exception policy is `restart`, or the task cannot be made.
        """
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            attached = tasks.create_task(essential(self._stay_attached()), name=f"{self._id}/attach")
            reporting = tasks.create_task(essential(self._reporter.run()), name=f"{self._id}/metrics")
            tuning = tasks.create_task(essential(self._tune()), name=f"{self._id}/tune")
            huge_pages = tasks.create_task(use_huge_pages(), name=f"{self._id}/huge_pages")
            try:
                error = await asyncio.shield(self._ended)
            except asyncio.CancelledError:
                await self._stop_task()
                raise
            finally:
                self._leaving = True
                await self._drain()
                # Before the last metrics: what arrives from here on is for the next incarnation of this task.
                attached.cancel()
                reporting.cancel()
                tuning.cancel()
                huge_pages.cancel()
                if self._checkpoints_run is not None:
                    self._checkpoints_run.cancel()
                if self._reading_ahead is not None:
                    self._reading_ahead.stop()
                with contextlib.suppress(Exception):  # what ends this process matters more than its last metrics
                    await self._reporter.flush(1.0)
        if error is not None:
            # Not the error itself: sys.exit(0) in user code would look like a graceful end.
            raise InstanceFailed(f"{self._id}: {said(error)}")

    async def _stop_task(self) -> None:
        if self._thread is None:
            return
        self._leaving = True
        self._thread.stop()
        try:
            async with asyncio.timeout(self._config.shutdown_timeout_ms / 1e3):
                await asyncio.shield(self._ended)
        except TimeoutError:
            log.warning("user code did not end within %s ms: ended by force", self._config.shutdown_timeout_ms)

    async def _drain(self) -> None:
        """Give what was flushed last a moment to leave."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._channel.all_sent()

    async def _stay_attached(self) -> None:
        target = f"unix:{self._launch.socket_dir(self._container) / 'stmgr.sock'}"
        # Orders stand behind what was received and is not read yet, because there is no room in data-in.
        read_ahead = READ_AHEAD_BYTES if self._launch.checkpoints else 0
        if self._launch.checkpoints:  # now, and not when there is a plan: in an update everybody waits for that
            importlib.import_module("heronpy.instance._checkpointed")
            self._reading_ahead = self._make_reading_ahead()
        while True:
            async with channel(target, self._security, read_ahead_bytes=read_ahead) as link:
                try:
                    await self._attach(link)
                except StreamLost as lost:
                    if self._not_attached != str(lost):  # else it has failed again, as often as there is an attempt
                        log.info("no longer attached: %s", lost)
                    self._not_attached = str(lost)
            if self._checkpoints is not None:
                self._checkpoints.detached()
            await asyncio.sleep(self._config.reconnect_interval_ms / 1e3)

    async def _attach(self, link: grpc.aio.Channel) -> None:
        call: Any = link.stream_stream(ATTACH)(metadata=self._security.metadata)
        try:
            await until_one_ends(self._read(call), self._write(call))
        finally:
            call.cancel()

    async def _read(self, call: Any) -> None:
        """Read until the Stream Manager closes."""
        while (data := await read_message(call)) is not None:
            self._not_attached = ""
            frame = stmgr_pb2.Frame.FromString(data)
            if frame.HasField("plan"):
                self._take_plan(self._of_own_code(PhysicalPlan.from_proto(frame.plan)))
            if (reading := self._reading_ahead) is not None:
                for order in frame.orders:
                    if order.HasField("read_ahead"):
                        reading.order(order.read_ahead)
            self._packets["received"] += 1
            self._packets["received_bytes"] += len(data)
            if self._checkpoints is None:
                for batch in self._intake.received(frame):
                    self._channel.put(batch)
            else:
                await self._checkpoints.received(frame)
            self._prompter.arm()
            await self._channel.has_in_room()
            if self._leaving:
                await asyncio.get_running_loop().create_future()

    async def _write(self, call: Any) -> None:
        await wait_connected(call)
        if self._checkpoints is not None:
            self._checkpoints.attached()
        while True:
            frame = await self._channel.next_frame()
            try:
                await write_message(call, frame)
            finally:
                # Written or lost with the connection: sending it again could execute tuples twice with one id.
                self._channel.sent(frame)
            self._packets["sent"] += 1
            self._packets["sent_bytes"] += len(frame)

    def _of_own_code(self, plan: PhysicalPlan) -> PhysicalPlan:
        """A plan with the topology as the code of this process defines it.

        Raises:
            StreamLost: the plan wants other code here. It is older than this process, or the executor is about to end
                this process.
        """
        packed = plan.packing.container(self._container)
        if packed is not None and packed.code != self._code:
            raise StreamLost(f"plan {plan.version} has code {packed.code!r} here, and this process {self._code!r}")
        return plan.seen_from(self._container)

    def _take_plan(self, plan: PhysicalPlan) -> None:
        before = self._intake.epoch
        if not self._intake.planned(plan):
            return
        if self._checkpoints is not None:
            self._checkpoints.planned(plan)
            return
        if self._thread is None:
            self._progress.configure(plan.logical.config_of(self._component))
            self._prompter.always = plan.logical.components[self._component].is_spout
            log.info("%s starts with plan %d", self._id, plan.version)
            if takes_checkpoints(plan.logical.config):
                self._thread = self._with_checkpoints(plan)
            else:
                self._channel.epoch = plan.restore_epoch
                self._thread = TaskThread(lambda: self._make_core(plan), self._channel, self._signal, self._ended_soon)
            self._thread.start()
            self.started.set()
            self._prompter.arm()
            return
        if plan.restore_epoch > before and (waiting := self._channel.enter_epoch()):
            log.info("restore epoch %d: %d batches that wait are dropped", plan.restore_epoch, waiting)

        def apply(task: Any) -> None:
            apply_plan(task, plan)  # what was emitted until now is sent in the epoch before
            self._channel.epoch = plan.restore_epoch

        self._channel.command(apply)

    def _with_checkpoints(self, plan: PhysicalPlan) -> TaskThread:
        from heronpy.ckptmgr.client import CheckpointClient  # the other modes do without all of this
        from heronpy.instance._checkpointed import CheckpointedTask

        assert self._tasks is not None
        self._timed = TimedCapacity(self._config)
        self._channel.in_capacity = self._timed.bytes
        self._checkpoints = checkpoints = CheckpointedTask(
            CheckpointClient(self._launch, container=self._container, process=self._id),
            plan,
            self._task_id,
            channel=self._channel,
            signal=self._signal,
            make_core=self._make_core,
            ended=self._ended_soon,
            report_exception=self._report_exception,
            masked=self._secrets.masked,
            reading_ahead=self._reading_ahead,
        )
        run = essential(checkpoints.run())
        self._checkpoints_run = self._tasks.create_task(run, name=f"{self._id}/checkpoints")
        return checkpoints.thread

    def _make_reading_ahead(self) -> ReadingAhead:
        from heronpy.ckptmgr.client import CheckpointClient
        from heronpy.instance._reading_ahead import ReadingAhead

        assert self._tasks is not None
        return ReadingAhead(
            lambda: CheckpointClient(self._launch, container=self._container, process=self._id),
            self._component,
            self._task_id,
            self._tasks,
        )

    def _make_core(self, plan: PhysicalPlan, saved: Saved | None = None) -> TaskCore:
        core = TaskCore(
            plan=plan,
            task_id=self._task_id,
            config=self._config,
            send=self._channel.send,
            report_exception=self._report_exception,
            secrets=self._secrets,
            wake=lambda: self._channel.command(lambda _task: None),
            signal=self._signal,
            metrics=self._metrics,
            saved=saved,
        )
        global_metrics.init(core.context, GLOBAL_METRICS_EVERY_S)
        return core

    def _report_exception(self, stacktrace: str) -> None:
        self._reporter.exception(self._secrets.masked(stacktrace))

    def _ended_soon(self, error: BaseException | None) -> None:
        """The task has ended; called in its thread."""
        self._loop.call_soon_threadsafe(self._finish, error)

    def _finish(self, error: BaseException | None) -> None:
        self._leaving = True
        self._progress.ended()
        if error is not None:
            log.error("the task ended: %s", said(error), exc_info=None if isinstance(error, TaskFailed) else error)
            if not isinstance(error, TaskFailed):  # else it was reported where it was raised
                self._metrics.add("__exception-count", 1)
                self._report_exception(traceback_of(error))
        if not self._ended.done():
            self._ended.set_result(error)

    def task_progress(self) -> TaskProgress:
        """For the heartbeats: see `ProgressMeter`."""
        rounds = None if self._thread is None else self._thread.rounds
        return self._progress.progress(rounds=rounds, busy=self._channel.busy, waits=self._channel.out_waits)

    async def _tune(self) -> None:
        while True:
            await asyncio.sleep(self._config.tuning_interval_ms / 1e3)
            waiting = self._channel.in_bytes
            if self._timed is None:
                self._channel.in_capacity = self._capacity.observed(waiting)
            else:
                executed, now_s = self._channel.executed_bytes, self._loop.time()
                self._channel.in_capacity = self._timed.observed(executed, waiting, now_s)

    def _collect(self) -> Iterable[metrics_pb2.Metric]:
        yield from self._metrics.collect()
        gauges = {
            "__gateway-in-stream-queue-size": self._channel.in_bytes,
            "__gateway-out-stream-queue-size": self._channel.out_bytes,
            "__gateway-in-stream-queue-expected-capacity": self._channel.in_capacity,
            "__gateway-out-stream-queue-expected-capacity": self._config.out_queue_bytes,
        }
        for name, value in gauges.items():
            yield metrics_pb2.Metric(name=name, value=value, kind=GAUGE)
        reported = self._reporter.reported
        totals = {
            "__gateway-received-packets-count": self._packets["received"],
            "__gateway-received-packets-size": self._packets["received_bytes"],
            "__gateway-sent-packets-count": self._packets["sent"],
            "__gateway-sent-packets-size": self._packets["sent_bytes"],
            "__gateway-sent-metrics-packets-count": reported.reports,
            "__gateway-sent-metrics-size": reported.size,
            "__gateway-sent-metrics-count": reported.metrics,
            "__gateway-sent-exceptions-count": reported.exceptions,
            "__gateway-in-queue-full-count": self._channel.in_full,
            # The task's own view, so it has no __gateway- before it.
            "__out-queue-full-count": self._channel.out_waits,
        }
        if self._thread is not None and (runner := self._thread.runner) is not None:
            totals |= {
                "__task-run-count": runner.rounds,
                "__continue-work-count": runner.continued,
                "__execution-count": runner.executed,
            }
        for name, total in totals.items():
            yield metrics_pb2.Metric(name=name, value=total - self._collected.get(name, 0))
        self._collected = totals


def _parse(instance_id: str) -> tuple[str, int]:
    """Component and task id of `container_<n>_<component>_<task>`."""
    component, task = instance_id.removeprefix("container_").split("_", 1)[1].rsplit("_", 1)
    return component, int(task)
