"""What a simulated cluster is made of: drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from heronpy.config import InstanceConfig, StmgrConfig
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PackingPlan
from heronpy.proto import topology_pb2
from heronpy.testing.simulation._loop import Loop
from heronpy.testing.simulation._network import BUFFER_BYTES
from heronpy.testing.simulation._programs import CYCLE, KINDS, LINE, topology


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a cluster is made of."""

    kind: str
    containers: int
    rate: float
    max_pending: int | None
    fail_share: float
    sink_cost_s: float
    standby: bool
    session_timeout_s: float
    """Of the state manager; 0: nodes vanish with their owner."""
    small_buffers: bool
    delay_s: float
    burst_s: float
    """How often sources emit what is due; 0: all the time. Bursts fill queues, which are empty otherwise."""
    checkpoints: bool = False
    """Effectively once, with instances that count instead of those of the users' code."""
    at_least_once: bool = False
    """With checkpoints, but at least once."""

    @classmethod
    def of(cls, seed: int, *, checkpoints: bool = False, at_least_once: bool = False) -> Setup:
        """The setup of a seed."""
        rng = Loop(seed).rng("setup")
        return cls(
            kind=rng.choice(KINDS),
            containers=rng.choice((2, 2, 3)),
            rate=rng.choice((3.0, 8.0, 20.0)),
            max_pending=rng.choice((None, 5, 40)),
            fail_share=rng.choice((0.0, 0.0, 0.02)),
            sink_cost_s=rng.choice((0.0, 0.0005, 0.004, 0.006)),
            standby=rng.random() < 0.3,
            session_timeout_s=rng.choice((0.0, 4.0)),
            small_buffers=rng.random() < 0.5,
            delay_s=rng.choice((0.001, 0.01, 0.1)),
            burst_s=rng.choice((0.0, 1.0, 3.0)),
        ).with_checkpoints(checkpoints or at_least_once, at_least_once=at_least_once)

    def with_checkpoints(self, wanted: bool, *, at_least_once: bool = False) -> Setup:
        """The same with checkpoints, or without."""
        if not wanted:
            return self
        kind = CYCLE if self.kind == CYCLE else LINE
        return replace(self, checkpoints=True, at_least_once=at_least_once, kind=kind)

    @property
    def network_buffer_bytes(self) -> int:
        """What a connection holds: with large ones nothing would ever wait in a process."""
        return 1000 if self.small_buffers else BUFFER_BYTES

    def stmgr_config(self) -> StmgrConfig:
        """Buffers that are full after some batches, or those of a cluster."""
        if not self.small_buffers:
            return StmgrConfig()
        return StmgrConfig(outbox_bytes_high=5000, outbox_bytes_low=600, frame_bytes=200, merge_bytes=150)

    def instance_config(self) -> InstanceConfig:
        """The same for instances."""
        if not self.small_buffers:
            return InstanceConfig(idle_sleep_ms=50.0)
        return InstanceConfig(
            in_queue_bytes=2000,
            in_queue_bytes_expected=1000,
            out_queue_bytes=2000,
            frame_bytes=1000,
            batch_tuples=20,
            idle_sleep_ms=50.0,
        )

    def topology(self) -> tuple[topology_pb2.Topology, PackingPlan]:
        """What runs, and where."""
        return _topology(self.kind, self.containers, self.max_pending, self.checkpoints, self.at_least_once)


@lru_cache(maxsize=64)
def _topology(
    kind: str, containers: int, max_pending: int | None, checkpoints: bool, at_least_once: bool
) -> tuple[topology_pb2.Topology, PackingPlan]:
    proto = topology(
        kind, containers=containers, max_pending=max_pending, checkpoints=checkpoints, at_least_once=at_least_once
    )
    return proto, RoundRobinPacking(LogicalPlan.from_proto(proto)).pack()


def hosts(setup: Setup) -> Sequence[str]:
    """The hosts of a cluster."""
    return [
        *(f"host-tmaster-{n}" for n in range(1 + setup.standby)),
        *(f"host-{n + 1}" for n in range(setup.containers)),
    ]


def processes(setup: Setup) -> Sequence[str]:
    """What faults can name: processes, and containers as a whole."""
    _, packing = setup.topology()
    names = [f"tmaster-{n}" for n in range(1 + setup.standby)]
    for container in packing.containers:
        names += [container.stmgr_id, *(i.instance_id(container.id) for i in container.instances)]
        names.append(f"container_{container.id}")
    return names
