"""The physical plan: the packing plan, the addresses of the Stream Managers, and the topology's state."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from functools import cached_property

from heronpy.plan._logical import LogicalPlan
from heronpy.plan._packing import ContainerPacking, InstancePacking, PackingPlan
from heronpy.proto import plan_pb2, topology_pb2


class TopologyState(enum.IntEnum):
    RUNNING = topology_pb2.RUNNING
    PAUSED = topology_pb2.PAUSED
    KILLED = topology_pb2.KILLED


@dataclass(frozen=True, slots=True)
class StmgrLocation:
    """Where one Stream Manager listens for its peers."""

    id: str
    container: int
    host: str
    port: int
    pid: int
    incarnation: int
    """Start time in ns: one that was restarted in its container has a larger one."""
    container_incarnation: int = 0
    """Of its container. Clocks of hosts differ, so this distinguishes a container from the one that replaced it."""

    @property
    def order(self) -> tuple[int, int]:
        """Grows with every Stream Manager of the container."""
        return self.container_incarnation, self.incarnation

    def to_proto(self) -> plan_pb2.StmgrLocation:
        return plan_pb2.StmgrLocation(
            id=self.id,
            container=self.container,
            host=self.host,
            port=self.port,
            pid=self.pid,
            incarnation=self.incarnation,
            container_incarnation=self.container_incarnation,
        )

    @classmethod
    def from_proto(cls, p: plan_pb2.StmgrLocation) -> StmgrLocation:
        return cls(p.id, p.container, p.host, p.port, p.pid, p.incarnation, p.container_incarnation)


@dataclass(frozen=True)
class PhysicalPlan:
    """What the Topology Master sends to every Stream Manager, and these to their instances."""

    version: int
    """Grows with every change."""
    logical: LogicalPlan
    packing: PackingPlan
    stmgrs: tuple[StmgrLocation, ...]
    state: TopologyState = TopologyState.RUNNING
    restore_epoch: int = 0
    """Raised by every restore. A process drops what carries an older one."""

    @cached_property
    def tasks(self) -> dict[int, tuple[ContainerPacking, InstancePacking]]:
        """Container and instance of every task id."""
        return {i.task_id: (c, i) for c in self.packing.containers for i in c.instances}

    @cached_property
    def component_tasks(self) -> dict[str, list[int]]:
        """Task ids of every component, ascending."""
        tasks: dict[str, list[int]] = {name: [] for name in self.logical.components}
        for task_id, (_, instance) in sorted(self.tasks.items()):
            tasks[instance.component].append(task_id)
        return tasks

    def seen_from(self, container: int) -> PhysicalPlan:
        """The same with the topology as the code of a container defines it: others may run other code."""
        code = self.packing.code_of(container)
        if len(self.packing.versions) == 1 or code is None:
            return self
        topology = self.packing.definition(self.logical.proto, container)
        logical = LogicalPlan.from_proto(topology).with_parallelism(self.packing.parallelism)
        return replace(self, logical=logical)

    def container_of(self, task_id: int) -> int:
        return self.tasks[task_id][0].id

    def instance_id(self, task_id: int) -> str:
        container, instance = self.tasks[task_id]
        return instance.instance_id(container.id)

    def to_proto(self) -> plan_pb2.PhysicalPlan:
        topology = topology_pb2.Topology()
        topology.CopyFrom(self.logical.proto)
        topology.state = topology_pb2.TopologyState.Name(self.state)  # type: ignore[assignment]  # the setter takes names
        return plan_pb2.PhysicalPlan(
            version=self.version,
            topology=topology,
            packing=self.packing.to_proto(),
            stmgrs=[s.to_proto() for s in self.stmgrs],
            restore_epoch=self.restore_epoch,
        )

    @classmethod
    def from_proto(cls, proto: plan_pb2.PhysicalPlan) -> PhysicalPlan:
        return cls(
            version=proto.version,
            logical=LogicalPlan.from_proto(proto.topology),
            packing=PackingPlan.from_proto(proto.packing),
            stmgrs=tuple(StmgrLocation.from_proto(s) for s in proto.stmgrs),
            state=TopologyState(proto.topology.state),
            restore_epoch=proto.restore_epoch,
        )
