"""The packing plan: which instances share a container, and what they may use."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from heronpy.proto import plan_pb2


@dataclass(frozen=True, slots=True)
class Resources:
    """What a container or an instance may use."""

    cpu: float
    """Cores."""
    ram_bytes: int
    disk_bytes: int

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.cpu + other.cpu,
            self.ram_bytes + other.ram_bytes,
            self.disk_bytes + other.disk_bytes,
        )

    def to_proto(self) -> plan_pb2.Resources:
        return plan_pb2.Resources(cpu=self.cpu, ram_bytes=self.ram_bytes, disk_bytes=self.disk_bytes)

    @classmethod
    def from_proto(cls, proto: plan_pb2.Resources) -> Resources:
        return cls(proto.cpu, proto.ram_bytes, proto.disk_bytes)


MASTER = Resources(cpu=1.0, ram_bytes=1024**3, disk_bytes=1024**3)
"""What container 0 asks for where the configuration does not say."""


@dataclass(frozen=True, slots=True)
class InstancePacking:
    """One task of one component and its share of a container."""

    component: str
    task_id: int
    """Unique in the topology, from 1."""
    component_index: int
    """0 … parallelism-1 within the component."""
    resources: Resources
    ram_given: bool = False
    """The configuration gives the RAM of this component: it is neither a default nor a share of a container."""
    cpu_given: bool = False
    """The same of its cores."""

    def instance_id(self, container: int) -> str:
        return f"container_{container}_{self.component}_{self.task_id}"


@dataclass(frozen=True, slots=True)
class ContainerPacking:
    """The instances of one container, and what the container needs in all."""

    id: int
    """From 1. Container 0 holds the Topology Master and is not packed."""
    instances: tuple[InstancePacking, ...]
    required: Resources

    @property
    def stmgr_id(self) -> str:
        return f"stmgr-{self.id}"


@dataclass(frozen=True, slots=True)
class PackingPlan:
    """All containers of a topology."""

    id: str
    containers: tuple[ContainerPacking, ...]
    highest_task_id: int = 0
    """The highest task id that the topology ever had: those of removed tasks are not used again.

    It is part of the plan because nothing else survives every process of the topology. At least the highest of the
    plan's own tasks, whatever is given.
    """
    master: Resources = MASTER
    """What container 0 asks for, which holds the Topology Master."""

    def __post_init__(self) -> None:
        own = max((i.task_id for c in self.containers for i in c.instances), default=0)
        object.__setattr__(self, "highest_task_id", max(self.highest_task_id, own))

    @property
    def parallelism(self) -> dict[str, int]:
        """How many tasks each component has."""
        return dict(Counter(i.component for c in self.containers for i in c.instances))

    @property
    def instance_ids(self) -> frozenset[str]:
        """The ids of all instances."""
        return frozenset(i.instance_id(c.id) for c in self.containers for i in c.instances)

    def joined(self, other: PackingPlan) -> PackingPlan:
        """A plan with the instances of another one besides its own: what runs while the other is being prepared."""
        own = {c.id: c for c in self.containers}
        for c in other.containers:
            before = own.get(c.id)
            here = before.instances if before is not None else ()
            ids = {i.instance_id(c.id) for i in here}
            new = (i for i in c.instances if i.instance_id(c.id) not in ids)
            own[c.id] = ContainerPacking(c.id, (*here, *new), c.required)
        return PackingPlan(self.id, tuple(own[id] for id in sorted(own)), self.highest_task_id, self.master)

    def container(self, container_id: int) -> ContainerPacking | None:
        return next((c for c in self.containers if c.id == container_id), None)

    def to_proto(self) -> plan_pb2.PackingPlan:
        return plan_pb2.PackingPlan(
            id=self.id,
            highest_task_id=self.highest_task_id,
            master=self.master.to_proto(),
            containers=[
                plan_pb2.ContainerPacking(
                    id=c.id,
                    required=c.required.to_proto(),
                    instances=[
                        plan_pb2.InstancePacking(
                            component=i.component,
                            task_id=i.task_id,
                            component_index=i.component_index,
                            resources=i.resources.to_proto(),
                            ram_given=i.ram_given,
                            cpu_given=i.cpu_given,
                        )
                        for i in c.instances
                    ],
                )
                for c in self.containers
            ],
        )

    @classmethod
    def from_proto(cls, proto: plan_pb2.PackingPlan) -> PackingPlan:
        return cls(
            id=proto.id,
            highest_task_id=proto.highest_task_id,
            master=Resources.from_proto(proto.master) if proto.HasField("master") else MASTER,
            containers=tuple(
                ContainerPacking(
                    id=c.id,
                    required=Resources.from_proto(c.required),
                    instances=tuple(
                        InstancePacking(
                            i.component,
                            i.task_id,
                            i.component_index,
                            Resources.from_proto(i.resources),
                            i.ram_given,
                            i.cpu_given,
                        )
                        for i in c.instances
                    ),
                )
                for c in proto.containers
            ),
        )
