"""A simulated instance: its real task, runner and gateway decisions, on a simulated link. The twin of `Instance`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from heronpy.config import InstanceConfig
from heronpy.instance.task import (
    BoltTask,
    Command,
    Intake,
    Runner,
    Signal,
    SpoutTask,
    TaskCore,
    apply_plan,
    apply_state,
    make_runner,
    make_task,
)
from heronpy.plan import PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.testing.simulation._loop import Process
from heronpy.testing.simulation._network import End, Network
from heronpy.testing.simulation._programs import Ledger

STEP_S = 0.0002
"""What a step of a task takes, at least."""


class SimulatedChannel:
    """The queues of `ThreadChannel` without threads: instead of waiting, it notes for how long the task would."""

    def __init__(self, config: InstanceConfig, changed: Callable[[], None]) -> None:
        """Make empty queues; `changed` is called when the gateway has something to do."""
        self.in_capacity, self._out_capacity = config.in_queue_bytes, config.out_queue_bytes
        self._frame_bytes, self._changed = config.frame_bytes, changed
        self._inbox: deque[stmgr_pb2.Batch | Command] = deque()
        self.out: deque[bytes] = deque()
        self.in_bytes = self.out_bytes = 0
        self._batches_put = self._batches_done = self._stale_until = 0
        self.epoch = 0
        self.wait_s = 0.0

    def put(self, batch: stmgr_pb2.Batch) -> None:
        self._batches_put += 1
        self.in_bytes += len(batch.body)
        self._inbox.append(batch)

    def command(self, command: Command) -> None:
        self._inbox.append(command)

    def enter_epoch(self) -> None:
        self._stale_until = self._batches_put

    @property
    def stale(self) -> bool:
        return self._batches_done < self._stale_until

    @property
    def in_full(self) -> bool:
        return self.in_bytes > self.in_capacity

    @property
    def out_full(self) -> bool:
        return self.out_bytes > self._out_capacity

    def sent(self, frame: bytes) -> None:
        self.out_bytes -= len(frame)

    def take(self, timeout_s: float) -> stmgr_pb2.Batch | Command | None:
        if self._inbox:
            return self._inbox.popleft()
        self.wait_s = timeout_s
        return None

    def done(self, batch: stmgr_pb2.Batch) -> None:
        self._batches_done += 1
        self.in_bytes -= len(batch.body)
        self._changed()

    def wait_out_room(self, timeout_s: float) -> None:
        self.wait_s = timeout_s

    def send(self, batches: list[stmgr_pb2.Batch]) -> None:
        frame: list[stmgr_pb2.Batch] = []
        size = 0
        for batch in batches:
            frame.append(batch)
            size += len(batch.body)
            if size >= self._frame_bytes:
                self._enqueue(frame)
                frame, size = [], 0
        if frame:
            self._enqueue(frame)
        self._changed()

    def _enqueue(self, batches: list[stmgr_pb2.Batch]) -> None:
        data = stmgr_pb2.Frame(batches=batches, epoch=self.epoch).SerializeToString()
        self.out_bytes += len(data)
        self.out.append(data)


class InstanceNode:
    """One incarnation of one instance."""

    def __init__(
        self,
        process: Process,
        network: Network,
        *,
        container: int,
        task_id: int,
        config: InstanceConfig,
        ledger: Ledger,
        cost_s: float,
    ) -> None:
        self.process, self._network, self._container = process, network, container
        self._task_id, self._config, self._ledger, self._cost_s = task_id, config, ledger, cost_s
        self._intake = Intake()
        self._channel = SimulatedChannel(config, self._gateway)
        self._end: End | None = None
        self._writing = b""
        self._runner: Runner | None = None
        self._wake_ns = 0
        self._worked_s = 0.0
        self.task: SpoutTask | BoltTask | None = None
        process.check = self._check
        self._attach()

    def _check(self) -> None:
        if self.task is not None:
            self.task.check_invariants()

    # the gateway

    def _attach(self) -> None:
        def again() -> None:
            self.process.after(self._config.reconnect_interval_ms / 1e3, self._attach)

        def opened(end: End) -> None:
            def ended() -> None:
                self._end = None
                self._lost()
                again()

            if end.closed:  # refused at once: the Stream Manager does not have it in its plan
                again()
                return
            self._end = end
            end.start(self._read, ended)
            self._gateway()

        host = f"host-{self._container}"
        address = f"stmgr-{self._container}.sock"
        self._network.dial(self.process, host, address, opened, again, self.process.name)

    def _lost(self) -> None:
        if self._writing:
            self._channel.sent(self._writing)
            self._writing = b""

    def _read(self, data: bytes) -> None:
        frame = stmgr_pb2.Frame.FromString(data)
        if frame.HasField("plan"):
            plan = PhysicalPlan.from_proto(frame.plan)
            before = self._intake.epoch
            if self._intake.planned(plan):
                if plan.restore_epoch > before:
                    self._channel.enter_epoch()
                self._take_plan(plan)
        for batch in self._intake.received(frame):
            self._channel.put(batch)
        self._gateway()
        self._wake(0.0)

    def _gateway(self) -> None:
        """Read while there is room, and write what waits."""
        if (end := self._end) is None:
            return
        if self._channel.in_full:
            end.hold_reads()
        else:
            end.resume_reads()
        if self._channel.out and not self._writing and not end.closed:
            frame = self._writing = self._channel.out.popleft()
            end.write(frame, lambda: self._written(end))

    def _written(self, end: End) -> None:
        if self._end is end:
            self._lost()
            self._gateway()

    # the task

    def _take_plan(self, plan: PhysicalPlan) -> None:
        if self._runner is not None:

            def apply(task: SpoutTask | BoltTask) -> None:
                apply_plan(task, plan)
                self._channel.epoch = plan.restore_epoch

            self._channel.command(apply)
            return
        self._channel.epoch = plan.restore_epoch
        core = TaskCore(
            plan=plan,
            task_id=self._task_id,
            config=self._config,
            send=self._channel.send,
            clock=lambda: self.process.loop.now_ns,
        )
        self.task = make_task(core)
        user, process = self.task.user_object, self.process
        rng = process.loop.rng(f"{process.name} {process.incarnation}")
        user.learn(self._ledger, self._task_id, process.incarnation, rng, self._cost_s)
        user.sends_in, user.takes_in = lambda: self._channel.epoch, lambda: self._intake.epoch
        self.task.open()
        apply_state(self.task, plan)
        self._runner = make_runner(self.task, self._channel, Signal())

    def _wake(self, delay_s: float) -> None:
        """Have the task do a step then, or before."""
        at_ns = self.process.loop.now_ns + int(delay_s * 1e9)
        busy_until_ns = self._busy_until_ns
        at_ns = max(at_ns, busy_until_ns)
        if self._wake_ns and self._wake_ns <= at_ns:
            return
        self._wake_ns = at_ns
        self.process.after((at_ns - self.process.loop.now_ns) / 1e9, self._work)

    _busy_until_ns = 0

    def _work(self) -> None:
        if not self._wake_ns or self.process.loop.now_ns < self._wake_ns or self._runner is None or self.task is None:
            return
        loop = self.process.loop
        self._wake_ns, self._channel.wait_s = 0, 0.0
        self._ledger.now_s = loop.now_s
        self._runner.step()
        worked_s = self.task.user_object.worked_s - self._worked_s
        self._worked_s += worked_s
        self._busy_until_ns = loop.now_ns + int((STEP_S + worked_s) * 1e9)
        self._wake(max(STEP_S + worked_s, self._channel.wait_s))
