"""Batches in flight that a checkpoint has, and that a serializer of the user's own has written."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from keyed_count_topology import Count, Ongoing, counts_in

from heronpy.api import Grouping, Spout, Topology, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.serializer import PythonSerializer
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}
RATE = 2000


class Versioned(PythonSerializer):
    """Reads only what it has written itself, in the version that a file says."""

    def initialize(self, config: dict[str, Any] | None = None) -> None:
        assert config is not None
        self.version = (Path(config["test.dir"]) / "version").read_bytes()

    def serialize(self, obj: Any) -> bytes:
        return self.version + super().serialize(obj)

    def deserialize(self, input_str: bytes) -> Any:
        if not input_str.startswith(self.version):
            raise ValueError(f"this is version {self.version.decode()}")
        return super().deserialize(input_str.removeprefix(self.version))


class SlowWhileTold(Count):
    """Takes its time for each tuple while the file `slow` is there."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.slow = Path(config["test.dir"]) / "slow"

    def process(self, tup: Tuple) -> None:
        if self.slow.exists():
            time.sleep(0.005)
        super().process(tup)


class Silent(Spout):
    """Emits nothing, and is late with its markers while the file `slow` is there."""

    outputs = ("key", "number")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        context.task_state("nothing", default=0)
        self.slow = Path(config["test.dir"]) / "slow"

    def next_tuple(self) -> None:
        if self.slow.exists():
            time.sleep(3)


def counting(directory: Path) -> type[Topology]:
    """`numbers` (1) and `silent` (1) → `count` (1)."""
    (directory / "version").write_text("1")
    builder = TopologyBuilder("versioned")
    numbers = builder.add_spout("numbers", Ongoing, 1)
    silent = builder.add_spout("silent", Silent, 1)
    ticking = {"topology.tick.tuple.freq.ms": 200}
    inputs = {numbers: Grouping.fields("key"), silent: Grouping.fields("key")}
    builder.add_bolt("count", SlowWhileTold, 1, inputs, config=ticking)
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 1,
            "topology.serializer.classname": "test_unreadable_logs.Versioned",
            "test.dir": str(directory),
            "test.numbers": 1 << 40,
            "test.rate": RATE,
        }
    )
    return builder.build()


def has_log(topology: TopologyHandle) -> None:
    assert topology.status().checkpoints.ended[-1].logged > 0


@pytest.mark.long
def test_what_a_changed_serializer_cannot_read_is_sent_again_from_an_older_checkpoint(tmp_path: Path) -> None:
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(counting(tmp_path)).wait_running()
        eventually_sync(lambda: committed(topology))
        (tmp_path / "slow").touch()
        eventually_sync(lambda: has_log(topology))
        (tmp_path / "version").write_text("2")
        os.kill(next(pid for id, pid in topology.processes().items() if "_count_" in id), signal.SIGKILL)

        def passed_over() -> None:
            found = topology.status().checkpoints
            assert "which test_unreadable_logs.Versioned has written and cannot read" in found.fallback, found

        eventually_sync(passed_over)
        (tmp_path / "slow").unlink()
        (tmp_path / "finish").touch()

        def exact() -> None:
            assert (tmp_path / "emitted").exists()
            emitted = int((tmp_path / "emitted").read_text())
            assert set(counts_in(tmp_path).values()) == {emitted // len(counts_in(tmp_path))}
            assert sum(counts_in(tmp_path).values()) == emitted

        eventually_sync(exact)


def committed(topology: TopologyHandle) -> None:
    assert topology.status().checkpoints.committed
