"""A whole topology in the caller's process and thread.

The same spout and bolt tasks that the instances run, driven one after the other, with a queue of batches for each
instead of Stream Managers. So a debugger stops in user code, and coverage sees it. There is no parallelism, no
backpressure, and nothing that can die. Effectively once, checkpoints are kept in memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from heronpy.api.state import ITwoPhaseStatefulComponent
from heronpy.config import InstanceConfig, checkpoint_interval_s, takes_checkpoints
from heronpy.errors import HeronError, UserCodeError
from heronpy.instance.checkpoints import RollbackNeeded, Snapshots
from heronpy.instance.task import BoltTask, SpoutTask, TaskCore, TaskFailed, make_task
from heronpy.loader import Definition, importable, user_traceback
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2, topology_pb2
from heronpy.testing._simulated_checkpoints import Reports, SimulatedCheckpoints
from heronpy.usersecrets import Secrets
from heronpy.wire import CONTROL, decode_control

INBOX_BATCHES = 64
"""A spout is not asked for more while some task has this many batches waiting."""

SETTLE_ROUNDS = 1000


class Simulator:
    """Runs one topology, step by step.

    with Simulator(WordCount) as simulator:
        simulator.run(until=lambda: done())
    """

    def __init__(
        self,
        topology: Any,
        *,
        config: InstanceConfig | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        lose: Callable[[stmgr_pb2.Batch], bool] = lambda _batch: False,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Make the tasks; nothing runs yet.

        Args:
            topology: a Topology class, a TopologyBuilder, a Definition, or the protobuf.
            config: of the tasks.
            clock: the time in ns. Tests may give their own.
            lose: which batches are lost on their way. Tests use it to see replays.
            secrets: the values of what `topology.secrets` declares.
        """
        logical = LogicalPlan.from_proto(_proto(topology))
        self.plan = _planned(logical)
        self._config = config or InstanceConfig()
        self._clock = clock
        self._lose = lose
        self._secrets = Secrets(secrets or {})
        self._checkpoints = SimulatedCheckpoints(self.plan) if takes_checkpoints(logical.config) else None
        self._interval_ns = int(checkpoint_interval_s(logical.config) * 1e9)
        self._checkpoint_at_ns = clock() + self._interval_ns
        self._snapshots: dict[int, Snapshots] = {}
        self._inboxes: dict[int, deque[stmgr_pb2.Batch]] = {task: deque() for task in self.plan.tasks}
        self.tasks: dict[int, SpoutTask | BoltTask] = {id: make_task(self._core(id)) for id in self.plan.tasks}
        """By task id; others after a restore."""

    def _core(self, task_id: int) -> TaskCore:
        saved = None if self._checkpoints is None else self._checkpoints.saved(task_id)
        core = TaskCore(
            plan=self.plan,
            task_id=task_id,
            config=self._config,
            send=self._send,
            clock=self._clock,
            saved=saved,
            secrets=self._secrets,
        )
        if self._checkpoints is not None:
            core.context.restore_epoch = self._checkpoints.epoch
        return core

    def __enter__(self) -> Simulator:
        self._open(self.tasks)
        return self

    def __exit__(self, *error: object) -> None:
        """Close every task. With checkpoints and without an error, a last one is taken behind all tuples."""
        self.deactivate()
        try:
            if self._checkpoints is not None and error[0] is None:
                self._settle(SETTLE_ROUNDS)
                self.checkpoint()
        finally:
            for task in self.tasks.values():
                task.close()

    def _open(self, made: Mapping[int, SpoutTask | BoltTask]) -> None:
        for task in sorted(made.values(), key=lambda task: isinstance(task, SpoutTask)):
            task.open()  # bolts first
        if self._checkpoints is not None:
            self._snapshots = {
                id: Snapshots(task, task.core.signal, Reports(self._checkpoints), self._checkpoints.epoch)
                for id, task in self.tasks.items()
            }
        self.activate()

    def activate(self) -> None:
        for task in self.tasks.values():
            task.activate()

    def deactivate(self) -> None:
        for task in self.tasks.values():
            task.deactivate()

    def component(self, name: str) -> list[Any]:
        """The user's spouts or bolts of a component, in the order of their tasks."""
        return [self.tasks[task].user_object for task in self.plan.component_tasks[name]]

    def total(self, metric: str) -> float:
        """A counter summed over all tasks."""
        return sum(task.core.metrics.total(metric) for task in self.tasks.values())

    def step(self) -> bool:
        """Let every task do a piece of work. Returns whether anything happened.

        Effectively once, a tuple that fails is a restore.
        """
        try:
            return self._step()
        except RollbackNeeded:
            self.restore()
            return True

    def _step(self) -> bool:
        progress = False
        for task_id, task in self.tasks.items():
            inbox = self._inboxes[task_id]
            if isinstance(task, BoltTask) or max(map(len, self._inboxes.values())) < INBOX_BATCHES:
                task.poll()
                progress |= isinstance(task, SpoutTask) and task.active and not task.idle
            for _ in range(len(inbox)):
                task.offer(inbox.popleft())
                progress = True
        if not progress:
            for task in self.tasks.values():
                task.flush()  # what a task still collects; no other task has anything to do meanwhile
        return progress or any(self._inboxes.values())

    def run(self, *, seconds: float | None = None, until: Callable[[], bool] = lambda: False) -> None:
        """Step until a time has passed or a condition holds; for ever without either. Sleeps while nothing happens.

        With checkpoints, one is taken every `topology.stateful.checkpoint.interval.seconds`.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while not until() and (end is None or time.monotonic() < end):
            if self._checkpoints is not None and self._clock() >= self._checkpoint_at_ns:
                self.checkpoint()
            if not self.step():
                time.sleep(0.001)

    def drain(self, *, rounds: int = SETTLE_ROUNDS) -> None:
        """Step, with the spouts emitting nothing new, until nothing moves."""
        self.deactivate()
        self._settle(rounds)
        self.activate()

    def _settle(self, rounds: int) -> None:
        for _ in range(rounds):
            if not self.step():
                break

    def checkpoint(self, *, commit: bool = True, tell: bool = True) -> None:
        """Take a checkpoint of all tasks, as they are between two steps, if the topology takes any.

        Args:
            commit: whether it succeeds; else it is aborted.
            tell: whether the tasks are notified that it is committed; else it is as if all died just before.

        Raises:
            CheckpointError: a state cannot be saved.
        """
        checkpoints = self._checkpoints
        assert checkpoints is not None, "the topology takes no checkpoints"
        self._checkpoint_at_ns = self._clock() + self._interval_ns
        id = checkpoints.take(self._snapshots.values())
        if not commit:
            for snapshots in self._snapshots.values():
                snapshots.abort(id)
            return
        checkpoints.commit({task: tuple(inbox) for task, inbox in self._inboxes.items()})
        for snapshots in self._snapshots.values() if tell else ():
            snapshots.commit(id)

    def restore(self, parallelism: Mapping[str, int] = MappingProxyType({}), *, kill: bool = False) -> None:
        """Have all tasks replaced by others that go on from the last committed checkpoint, if any are taken.

        At least once, a spout without state stays, and is notified of what it has to emit again.

        Args:
            parallelism: how many tasks components have from now on, where it changes. The checkpoint must have been
                taken with nothing on its way: see `drain`.
            kill: whether the present tasks just end, as their processes would; else they are cleaned up.
        """
        checkpoints = self._checkpoints
        assert checkpoints is not None, "the topology takes no checkpoints"
        to = checkpoints.committed
        assert not (parallelism and any(to.on_their_way.values())), "tuples are on their way to tasks that are no more"
        kept = {} if kill else self._kept(parallelism)
        for id, task in () if kill else self.tasks.items():
            if id in kept:
                continue
            component = task.user_object
            task.restored(to.id)
            if isinstance(component, ITwoPhaseStatefulComponent):
                component.pre_restore(str(to.id))
            task.retire()
        if parallelism:
            self.plan = checkpoints.plan = _planned(self.plan.logical.with_parallelism(parallelism))
        checkpoints.epoch += 1
        self._inboxes = {task: deque(to.on_their_way.get(task, ())) for task in self.plan.tasks}
        for id, task in kept.items():
            task.core.context.restore_epoch = checkpoints.epoch
            task.kept(to.id, checkpoints.saved(id))
            task.replan(self.plan)
        self.tasks = {id: kept.get(id) or make_task(self._core(id)) for id in self.plan.tasks}
        self._open({id: task for id, task in self.tasks.items() if id not in kept})

    def _kept(self, parallelism: Mapping[str, int]) -> dict[int, SpoutTask]:
        """At least once: spouts that emit again what is reported to them as failed."""
        return {
            id: task
            for id, task in self.tasks.items()
            if isinstance(task, SpoutTask) and task.replays and task.core.component.name not in parallelism
        }

    def _send(self, batches: list[stmgr_pb2.Batch]) -> None:
        for batch in batches:
            if not self._lose(batch) and not _is_marker(batch):
                self._inboxes[batch.dest_task].append(batch)


def _planned(logical: LogicalPlan) -> PhysicalPlan:
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())


def _is_marker(batch: stmgr_pb2.Batch) -> bool:
    """Whether a batch is the marker of a checkpoint: the cut is where all tasks stop, without any."""
    return batch.kind == CONTROL and decode_control(batch.body).WhichOneof("control") == "marker"


def _proto(topology: Any) -> topology_pb2.Topology:
    if isinstance(topology, topology_pb2.Topology):
        return topology
    if isinstance(topology, Definition):
        return topology.proto
    built: Any = topology if isinstance(topology, type) else topology.build()
    return built.protobuf_topology  # type: ignore[no-any-return]  # set by the metaclass


def simulate(
    definition: Definition,
    *,
    config: InstanceConfig | None = None,
    seconds: float | None = None,
    secrets: Mapping[str, str] | None = None,
) -> None:
    """Run a definition in this process: `heron submit --simulator`. Until Ctrl-C, unless `seconds` are given.

    Raises:
        UserCodeError: user code failed. Its traceback is in the error, unless it was logged.
    """
    try:
        with importable(definition), Simulator(definition, config=config, secrets=secrets) as simulator:
            simulator.run(seconds=seconds)
    except TaskFailed as e:
        raise UserCodeError(f"{e} failed: {type(e.__cause__).__name__}: {e.__cause__}", "") from e
    except HeronError:
        raise
    except Exception as e:
        # From initialize(), activate(), cleanup(): user code may raise whatever it likes.
        raise UserCodeError(f"{definition.name} failed: {type(e).__name__}: {e}", user_traceback(e)) from e
