"""What windows cost a bolt: CPU of a tuple, at most once and effectively once; of a checkpoint, and of a restore.

python -m tests.bench.windowed_bolts --tuples 200000
"""

from __future__ import annotations

import argparse
import gc
import operator
import time
from collections.abc import Callable
from typing import Any

from heronpy.api import BaseWindowedBolt, Bolt, Count, Duration, Grouping, KeyedWindowBolt, TopologyBuilder, Tuple
from heronpy.config import InstanceConfig
from heronpy.instance.task import TaskCore, make_task
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.windows import Pane, Reduce, Tumbling
from tests.unit.snapshot_kit import Hand, Numbers, Stored, numbers

WINDOWED = 2
"""Task id."""
BATCH = 1000
KEYS = 10_000


class Lengths(BaseWindowedBolt):
    outputs = ["length"]  # noqa: RUF012  # Heron's way to declare

    def execute(self, window: Any) -> None:
        self.emit([len(window.get())])


class Sums(KeyedWindowBolt):
    outputs = ["sum"]  # noqa: RUF012
    fold = Reduce(operator.add)

    def value(self, tup: Tuple) -> int:
        return 1

    def on_pane(self, pane: Pane) -> None:
        self.emit([pane.value])


class Sink(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)


KINDS: dict[str, Any] = {
    "last 1,000": Lengths.with_tumbling_window(Count(BATCH)),
    "100 s of event time every 10 s": Lengths.with_window(Duration(100_000), Duration(10_000)).with_timestamp_field(
        "number"
    ),
    f"sums by key, {KEYS:,} keys": Sums.with_windows(Tumbling(1000)),
}


def plan_of(bolt: Any, mode: str) -> PhysicalPlan:
    builder = TopologyBuilder("windows")
    spout = builder.add_spout("numbers", Numbers, 1)
    windowed = builder.add_bolt("windowed", bolt, 1, {spout: Grouping.fields("number")})
    builder.add_bolt("sink", Sink, 1, {windowed: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": mode})
    proto = builder.build().protobuf_topology
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())


def without_checkpoints(bolt: Any) -> Any:
    core = TaskCore(
        plan=plan_of(bolt, "ATMOST_ONCE"), task_id=WINDOWED, config=InstanceConfig(), send=lambda _batches: None
    )
    task = make_task(core)
    task.open()
    return task


def execute(task: Any, batches: list[Any]) -> None:
    for number, batch in enumerate(batches, 1):
        task.offer(batch)
        if number % 50 == 0:
            task.user_object.process_tick(None)
            task.flush()


def checkpoint(hand: Hand, id: int) -> list[float]:
    """CPU seconds of each stop."""
    stops = [cpu_s(lambda: hand.snapshots.take(id))]
    more = True

    def write() -> None:
        nonlocal more
        more = hand.snapshots.write()

    while more:
        stops.append(cpu_s(write))
    hand.stored.commit(id)
    hand.snapshots.commit(id)
    return stops


def measured(tuples: int, rounds: int) -> dict[str, float]:
    """Figures by name: the least of the rounds, in which the modes take turns."""
    found: dict[str, list[float]] = {}
    gc.collect()
    gc.disable()  # it stops a task for as long as it likes
    try:
        for _ in range(rounds):
            for name, bolt in KINDS.items():
                batches = [
                    numbers([n % KEYS if "key" in name else n for n in range(first, first + BATCH)], WINDOWED)
                    for first in range(0, tuples, BATCH)
                ]
                for mode, task in (
                    ("at most once", without_checkpoints(bolt)),
                    ("effectively once", Hand(Stored(plan_of(bolt, "EFFECTIVELY_ONCE")), WINDOWED).task),
                ):
                    took_s = cpu_s(lambda task=task, batches=batches: execute(task, batches))  # type: ignore[misc]
                    found.setdefault(f"{name}: {mode}, ns per tuple", []).append(took_s / tuples * 1e9)
            for name, value in of_checkpoints(tuples).items():
                found.setdefault(name, []).append(value)
    finally:
        gc.enable()
    return {name: min(values) for name, values in found.items()}


def of_checkpoints(tuples: int) -> dict[str, float]:
    """Of a window with all of the tuples in it."""
    stored = Stored(plan_of(Lengths.with_tumbling_window(Count(10 * tuples)), "EFFECTIVELY_ONCE"))
    hand = Hand(stored, WINDOWED)
    for first in range(0, tuples, BATCH):
        hand.task.offer(numbers(range(first, first + BATCH), WINDOWED))  # type: ignore[union-attr]  # it is a bolt
    stops = checkpoint(hand, 1)
    hand.task.offer(numbers(range(tuples // 100), WINDOWED))  # type: ignore[union-attr]
    checkpoint(hand, 2)
    whole, changed = (len(data) for data in stored.objects.values())
    return {
        "checkpoint of elements: ns each": sum(stops) / tuples * 1e9,
        "checkpoint of elements: bytes each": whole / tuples,
        "longest stop by it, ms of CPU": max(stops) * 1e3,
        "bytes with 1 % new elements, % of all": changed / whole * 100,
        "restore: ns per element": cpu_s(lambda: Hand(stored, WINDOWED, 2, epoch=2)) / tuples * 1e9,
    }


def cpu_s(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuples", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for name, value in measured(arguments.tuples, arguments.rounds).items():
        print(f"{name:60} {value:12,.1f}")


if __name__ == "__main__":
    main()
