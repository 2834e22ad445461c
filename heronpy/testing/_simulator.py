"""A whole topology in the caller's process and thread.

The same spout and bolt tasks that the instances run, driven one after the other, with a queue of batches for each
instead of Stream Managers. So a debugger stops in user code, and coverage sees it. There is no parallelism, no
backpressure, and nothing that can die.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from heronpy.config import InstanceConfig
from heronpy.errors import HeronError, UserCodeError
from heronpy.instance.task import BoltTask, SpoutTask, TaskCore, TaskFailed
from heronpy.loader import Definition, importable, user_traceback
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2, topology_pb2

INBOX_BATCHES = 64
"""A spout is not asked for more while some task has this many batches waiting."""


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
    ) -> None:
        """Make the tasks; nothing runs yet.

        Args:
            topology: a Topology class, a TopologyBuilder, a Definition, or the protobuf.
            config: of the tasks.
            clock: the time in ns. Tests may give their own.
            lose: which batches are lost on their way. Tests use it to see replays.
        """
        logical = LogicalPlan.from_proto(_proto(topology))
        self.plan = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
        self._lose = lose
        self._inboxes: dict[int, deque[stmgr_pb2.Batch]] = {task: deque() for task in self.plan.tasks}
        self.tasks: dict[int, SpoutTask | BoltTask] = {}
        """By task id."""
        for task_id, (_, instance) in self.plan.tasks.items():
            core = TaskCore(
                plan=self.plan, task_id=task_id, config=config or InstanceConfig(), send=self._send, clock=clock
            )
            is_spout = logical.components[instance.component].is_spout
            self.tasks[task_id] = SpoutTask(core) if is_spout else BoltTask(core)

    def __enter__(self) -> Simulator:
        for task in sorted(self.tasks.values(), key=lambda task: isinstance(task, SpoutTask)):
            task.open()  # bolts first
        self.activate()
        return self

    def __exit__(self, *_: object) -> None:
        """Close every task."""
        self.deactivate()
        for task in self.tasks.values():
            task.close()

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
        """Let every task do a piece of work. Returns whether anything happened."""
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
                task.flush()  # what a task still collects; nobody else has anything to do meanwhile
        return progress or any(self._inboxes.values())

    def run(self, *, seconds: float | None = None, until: Callable[[], bool] = lambda: False) -> None:
        """Step until a time has passed or a condition holds; for ever without either. Sleeps while nothing happens."""
        end = None if seconds is None else time.monotonic() + seconds
        while not until() and (end is None or time.monotonic() < end):
            if not self.step():
                time.sleep(0.001)

    def drain(self, *, rounds: int = 1000) -> None:
        """Step, with the spouts emitting nothing new, until nothing moves."""
        self.deactivate()
        for _ in range(rounds):
            if not self.step():
                break
        self.activate()

    def _send(self, batches: list[stmgr_pb2.Batch]) -> None:
        for batch in batches:
            if not self._lose(batch):
                self._inboxes[batch.dest_task].append(batch)


def _proto(topology: Any) -> topology_pb2.Topology:
    if isinstance(topology, topology_pb2.Topology):
        return topology
    if isinstance(topology, Definition):
        return topology.proto
    built: Any = topology if isinstance(topology, type) else topology.build()
    return built.protobuf_topology  # type: ignore[no-any-return]  # set by the metaclass


def simulate(definition: Definition, *, config: InstanceConfig | None = None, seconds: float | None = None) -> None:
    """Run a definition in this process: `heron submit --simulator`. Until Ctrl-C, unless `seconds` are given.

    Raises:
        UserCodeError: user code failed. Its traceback is in the error, unless it was logged.
    """
    try:
        with importable(definition), Simulator(definition, config=config) as simulator:
            simulator.run(seconds=seconds)
    except TaskFailed as e:
        raise UserCodeError(f"{e} failed: {type(e.__cause__).__name__}: {e.__cause__}", "") from e
    except HeronError:
        raise
    except Exception as e:
        # From initialize(), activate(), cleanup(): user code may raise whatever it likes.
        raise UserCodeError(f"{definition.name} failed: {type(e).__name__}: {e}", user_traceback(e)) from e
