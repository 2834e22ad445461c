"""A model of the whole checkpoint protocol: the real cores in processes that die between any two steps.

Real are `CheckpointCoordinator` and `Leadership` (Topology Masters), `Alignment` and `CommitLedger` (tasks). Stream
Managers, links, the state manager and the storage of snapshots are modelled: links keep the order, number their frames
in each epoch, and lose frames silently; what a Stream Manager or a task finds missing taints the epoch, in order with
the reports of snapshots. Everything is drawn from one seed; faults are a list, which can be made smaller.

A topology is a small graph of components, with a cycle sometimes. Every tuple adds 1 to one key of each task that
executes it, and says which tuples follow from it, so what a prefix of the input makes of all state is known. Promised:

* Effectively once: whatever is committed is the state after a prefix of the input, once what its logs hold is executed;
  a restore takes the last committed checkpoint; in the end all state is that of a run without faults.
* At least once: whatever a spout is told of is in every task's committed state, once what the logs hold is executed.
* Without faults there is progress: checkpoints commit until one covers everything.
"""

from __future__ import annotations

import marshal
import random
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from checkpoint_model_engine import Stmgr, Store, Tmaster
from checkpoint_model_tasks import BATCHES, Broken, Graph, Item, Link, Task

from heronpy.instance.checkpoints import (
    InputBatch,
)
from heronpy.statemgr import Kind
from heronpy.tmaster.checkpoints import (
    CheckpointSettings,
    ManifestFailed,
    ManifestWritten,
    TaskPhase,
    WriteManifest,
)

TICK_S = 0.25
STEPS_PER_TICK = 40
FAULTY_STEPS = 2400
CALM_STEPS = 40_000

Fault = tuple[int, str, int]
"""At which step, what, and a number that says where."""
FAULTS = ("task", "stmgr", "tmaster", "zombie", "cut", "slow", "late", "storage", "away", "unanswered")


class Model:
    """A topology that runs."""

    def __init__(self, seed: int, *, at_least_once: bool = False) -> None:
        self.rng = random.Random(seed)
        self.graph = Graph(self.rng)
        self.at_least_once = at_least_once
        self.inputs_end = self.rng.random() < 0.5
        self.alignment = {
            "set_aside_bytes_max": self.rng.choice((0, 120, 1 << 20)),
            "log_bytes_max": self.rng.choice((600, 1 << 20)),
            "timeout_s": self.rng.choice((0.3, 1.5, 5.0)),
        }
        self.settings = CheckpointSettings(interval_s=0.5, timeout_s=10.0)
        every = set(self.graph.component_of)
        self.steps, self.now_s = 0, 0.0
        self._incarnations = 0
        self.store = Store(self)
        self.storage: dict[tuple[int, int], tuple[bytes, tuple[InputBatch, ...]]] = {}
        self.manifests: set[int] = set()
        self.storage_fails = False
        self.acked: dict[int, set[int]] = {spout: set() for spout in self.graph.spouts}
        self.up = {task: Link() for task in every}
        self.down = {task: Link() for task in every}
        self.peers = {(a, b): Link() for a in self.graph.stmgrs for b in self.graph.stmgrs if a != b}
        self.control_up: dict[int, deque[Any]] = {task: deque() for task in every}
        self.control_down: dict[int, deque[Any]] = {task: deque() for task in every}
        self.processes: dict[str, Any] = {}
        self.down_until: dict[str, int] = {}
        self.ends: list[tuple[int, str]] = []
        for task in sorted(every):
            self.start(f"task {task}")
        for name in (*self.graph.stmgrs, "tmaster-0", "tmaster-1"):
            self.start(name)
        self.names = sorted(self.processes)

    def next_incarnation(self) -> int:
        self._incarnations += 1
        return self._incarnations

    def next_id(self) -> int:
        return self.rng.getrandbits(62)

    def start(self, name: str) -> None:
        if name.startswith("task"):
            self.processes[name] = Task(self, int(name.removeprefix("task ")))
        elif name.startswith("stmgr"):
            self.processes[name] = Stmgr(self, name)
        else:
            self.processes[name] = Tmaster(self, name)

    def links(self) -> list[Link]:
        return [*self.up.values(), *self.down.values(), *self.peers.values()]

    def tasks(self) -> list[Task]:
        return [p for p in self.processes.values() if isinstance(p, Task)]

    def active_tmaster(self) -> Tmaster | None:
        owner = self.store.nodes.get(Kind.TMASTERS)
        found = [p for p in self.processes.values() if isinstance(p, Tmaster) and p.location == owner]
        return found[0] if found else None

    def write_manifest(self, effect: WriteManifest) -> ManifestWritten | ManifestFailed:
        """Store a manifest for a Topology Master, who may have been replaced meanwhile."""
        if effect.previous and effect.previous not in self.manifests:
            return ManifestFailed(effect.checkpoint, effect.epoch, "what it follows is discarded", self.now_s)
        if not self.storage_fails:
            self.manifests.add(effect.checkpoint)
            if not self.store.unanswered:
                return ManifestWritten(effect.checkpoint, effect.epoch, self.now_s)
        return ManifestFailed(effect.checkpoint, effect.epoch, "no storage", self.now_s)

    def discard(self, keep: tuple[int, ...], before: int) -> None:
        self.manifests = {id for id in self.manifests if id >= before or id in keep}
        for task, id in list(self.storage):
            if id < before and id not in keep:
                del self.storage[task, id]

    # running

    def step(self) -> None:
        self.steps += 1
        if self.steps % STEPS_PER_TICK == 0:
            self.tick()
        process = self.processes.get(self.rng.choice(self.names))
        if process is not None:
            process.step(self.rng)

    def tick(self) -> None:
        self.now_s += TICK_S
        for name, until in list(self.down_until.items()):
            if self.steps >= until:
                del self.down_until[name]
                self.start(name)
        for name in self.names:
            process = self.processes.get(name)
            if isinstance(process, Tmaster) and process.deposed:
                self.kill(name, 40)
            elif process is not None:
                process.tick()

    def kill(self, name: str, steps: int) -> None:
        process = self.processes.pop(name, None)
        if process is not None:
            process.die(self.rng)
            self.down_until[name] = self.steps + steps

    def fault(self, kind: str, which: int) -> None:
        """Have something happen; `which` says to whom, and for how long."""
        rng = random.Random(which)
        alive = sorted(self.processes)
        steps = rng.randint(1, 200)
        if kind in ("task", "stmgr", "tmaster"):
            if names := [name for name in alive if name.startswith(kind)]:
                self.kill(rng.choice(names), steps)
        elif kind == "zombie":
            if (active := self.active_tmaster()) is not None:
                active.paused_until = self.steps + steps
                self.store.expire(active.location)
        elif kind == "cut":
            if links := [link for link in self.links() if link.frames]:
                link = rng.choice(links)
                for _ in range(rng.randint(1, len(link.frames))):
                    link.frames.pop()
        elif kind == "slow":
            if names := [name for name in alive if name.startswith("task")]:
                self.processes[rng.choice(names)].busy_until = self.steps + 4 * steps
        elif kind == "late":
            if names := [name for name in alive if name.startswith("stmgr")]:
                self.processes[rng.choice(names)].late_until = self.steps + 4 * steps
        else:
            setattr(*self.switch(kind), True)
            self.ends.append((self.steps + steps, kind))

    def switch(self, kind: str) -> tuple[Any, str]:
        return (self, "storage_fails") if kind == "storage" else (self.store, kind)

    def run(self, faults: Sequence[Fault]) -> None:
        """Run with faults, then without until everything is committed.

        Raises:
            Broken: a promise was not kept.
        """
        waiting = deque(sorted(faults))
        while waiting or self.ends:
            while waiting and waiting[0][0] <= self.steps:
                self.fault(*waiting.popleft()[1:])
            for end in [end for end in self.ends if end[0] <= self.steps]:
                self.ends.remove(end)
                if end[1] not in [kind for _, kind in self.ends]:
                    setattr(*self.switch(end[1]), False)
            self.step()
        deadline = self.steps + CALM_STEPS
        while not self.done():
            if self.steps > deadline:
                raise Broken(f"not everything is committed after {CALM_STEPS} steps without a fault")
            for _ in range(STEPS_PER_TICK):
                self.step()
        self.check_end()

    def done(self) -> bool:
        """Whether a committed checkpoint covers everything, and nothing is under way."""
        if self.at_least_once:
            return all(len(acked) == BATCHES for acked in self.acked.values())
        newest = max(self.store.commits, default=0)
        for spout in self.graph.spouts:
            found = self.storage.get((spout, newest))
            if found is None or marshal.loads(found[0])["position"] < BATCHES:
                return False
        return self.quiet()

    def quiet(self) -> bool:
        if any(what[0] == "data" for link in self.links() for _, _, what in link.frames):
            return False
        tasks = self.tasks()
        return len(tasks) == len(self.graph.component_of) and all(
            task.phase is TaskPhase.RUNNING and not task.queue and not task.current and not task.alignment.in_progress
            for task in tasks
        )

    # promises

    def expected(self, positions: dict[int, int]) -> Counter[tuple[int, int]]:
        counts: Counter[tuple[int, int]] = Counter()
        for spout, position in positions.items():
            for number in range(position):
                counts += self.graph.counts_of(spout, number)
        return counts

    def check_cut(self, checkpoint: int) -> None:
        if self.at_least_once:
            self.check_acked()
            return
        counts: Counter[tuple[int, int]] = Counter()
        positions: dict[int, int] = {}
        for task in self.graph.component_of:
            if (task, checkpoint) not in self.storage:
                raise Broken(f"checkpoint {checkpoint} is committed without a snapshot of task {task}")
            state, log = self.storage[task, checkpoint]
            loaded = marshal.loads(state)
            if task in self.graph.spouts:
                positions[task] = loaded["position"]
            for key, count in loaded["counts"].items():
                counts[task, key] += count
            for batch in log:
                for key, hops, _, _ in marshal.loads(batch.data)[batch.skip :]:
                    self.graph.closure(counts, task, key, hops)
        if counts != (expected := self.expected(positions)):
            raise Broken(f"checkpoint {checkpoint}: more {counts - expected}, less {expected - counts}")

    def check_acked(self) -> None:
        """What spouts were told of is in every committed state."""
        newest = max(self.store.commits, default=0)
        covered = self.covered(newest) if newest else {}
        for spout, numbers in self.acked.items():
            for number in numbers:
                for task, _ in self.graph.counts_of(spout, number):
                    if spout * BATCHES + number not in covered[task]:
                        raise Broken(f"{number} of {spout} is acked, but not in checkpoint {newest} of task {task}")

    def covered(self, checkpoint: int) -> dict[int, set[int]]:
        """What each task has executed once a checkpoint is restored, as numbers of spouts' batches."""
        covered = {}
        logged: list[tuple[int, Item]] = []
        for task in self.graph.component_of:
            state, log = self.storage[task, checkpoint]
            covered[task] = set(marshal.loads(state)["seen"])
            logged += [(task, item) for batch in log for item in marshal.loads(batch.data)[batch.skip :]]
        for task, (key, hops, root, _) in logged:
            counts: Counter[tuple[int, int]] = Counter()
            self.graph.closure(counts, task, key, hops)
            for each, _ in counts:
                covered[each].add(root % 1000)
        return covered

    def check_end(self) -> None:
        if self.at_least_once:
            self.check_acked()
            return
        counts = Counter({(t.id, key): n for t in self.tasks() for key, n in t.state["counts"].items()})
        expected = self.expected(dict.fromkeys(self.graph.spouts, BATCHES))
        if counts != expected:
            raise Broken(f"at the end: more {counts - expected}, less {expected - counts}")


def faults_of(seed: int) -> list[Fault]:
    """Some faults for a seed."""
    rng = random.Random(f"faults {seed}")
    return sorted(
        (rng.randrange(FAULTY_STEPS), rng.choice(FAULTS), rng.randrange(10_000)) for _ in range(rng.randint(0, 8))
    )


def failure_of(seed: int, faults: Sequence[Fault] | None = None, *, at_least_once: bool = False) -> str:
    """How a run breaks a promise; empty: it does not."""
    try:
        Model(seed, at_least_once=at_least_once).run(faults_of(seed) if faults is None else faults)
    except AssertionError as error:
        return str(error) or "an assertion"
    return ""
