"""The packing plan: which instances share a container, and what they may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from heronpy.plan._code import CodeTrial, CodeVersion
from heronpy.proto import plan_pb2, topology_pb2


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
    code: str = ""
    """The version of the user's code that it runs; empty: what was submitted."""

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
    codes: tuple[CodeVersion, ...] = ()
    """The code that containers run, may fall back to, or are to have on their hosts, apart from what was submitted."""
    trial: CodeTrial | None = None
    """The newest code is not accepted yet."""
    revision: int = field(default=0, compare=False)
    """Grows with each change that the Topology Master writes: so a plan of an old backup shows. Of two that are alike,
    it is not a difference."""

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
            own[c.id] = replace(before or c, instances=(*here, *new), required=c.required)
        return replace(self, containers=tuple(own[id] for id in sorted(own)))

    # -- code ----------------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> frozenset[str]:
        """The versions of the code that containers run."""
        return frozenset(c.code for c in self.containers)

    @property
    def needed_codes(self) -> frozenset[str]:
        """The versions of the code that must not be removed; empty text: what was submitted."""
        fallback = {self.trial.fallback} if self.trial is not None else set()
        return self.versions | fallback | {code.version for code in self.codes}

    def code_of(self, container: int) -> CodeVersion | None:
        """The code of a container; None: what was submitted."""
        packed = self.container(container)
        return self._code(packed.code) if packed is not None else None

    def runs_like(self, other: PackingPlan) -> bool:
        """Whether both have the same processes run the same code: at most they differ in whether that is accepted."""
        return replace(self, codes=(), trial=None) == replace(other, codes=(), trial=None)

    def with_staged(self, code: CodeVersion) -> PackingPlan:
        """The same with code that hosts are to have before any container runs it."""
        known = tuple(one for one in self.without_unused_code().codes if one.version != code.version)
        return replace(self, codes=(*known, code))

    def on_trial(self, code: CodeVersion, containers: Iterable[int], trial: CodeTrial) -> PackingPlan:
        """The same with new code in some containers, to be accepted."""
        wanted = frozenset(containers)
        packed = tuple(replace(c, code=code.version) if c.id in wanted else c for c in self.containers)
        others = tuple(known for known in self.codes if known.version != code.version)
        return replace(self, containers=packed, codes=(*others, code), trial=trial).without_unused_code()

    def accepted(self) -> PackingPlan:
        """The same with its code accepted."""
        return replace(self, trial=None).without_unused_code()

    def rolled_back(self) -> PackingPlan:
        """The same with the code from before the trial, in all containers."""
        assert self.trial is not None, "there is nothing to fall back to"
        packed = tuple(replace(c, code=self.trial.fallback) for c in self.containers)
        return replace(self, containers=packed, trial=None).without_unused_code()

    def with_code_of(self, other: PackingPlan) -> PackingPlan:
        """The same with the code of another plan, which runs one version."""
        (version,) = other.versions
        packed = tuple(replace(c, code=version) for c in self.containers)
        return replace(self, containers=packed, codes=other.codes, trial=other.trial)

    def definition(self, submitted: topology_pb2.Topology, container: int | None = None) -> topology_pb2.Topology:
        """The topology as the code of a container defines it.

        Without a container: as the newest code does, but what was submitted as long as any container runs that, since
        a plan has it nowhere else.
        """
        code = self.code_of(container) if container is not None else self._newest_code
        if code is None:
            return submitted
        topology = topology_pb2.Topology.FromString(code.definition)
        topology.id, topology.state = submitted.id, submitted.state
        return topology

    @property
    def _newest_code(self) -> CodeVersion | None:
        running = [code for code in self.codes if code.version in self.versions]
        return running[-1] if running and "" not in self.versions else None

    def _code(self, version: str) -> CodeVersion | None:
        return next((code for code in self.codes if code.version == version), None)

    def without_unused_code(self) -> PackingPlan:
        """The same with the code alone that containers run, or may fall back to."""
        used = self.versions | ({self.trial.fallback} if self.trial is not None else set())
        return replace(self, codes=tuple(code for code in self.codes if code.version in used))

    def container(self, container_id: int) -> ContainerPacking | None:
        return next((c for c in self.containers if c.id == container_id), None)

    def to_proto(self) -> plan_pb2.PackingPlan:
        return plan_pb2.PackingPlan(
            id=self.id,
            highest_task_id=self.highest_task_id,
            master=self.master.to_proto(),
            codes=[code.to_proto() for code in self.codes],
            trial=self.trial.to_proto() if self.trial is not None else None,
            revision=self.revision,
            containers=[
                plan_pb2.ContainerPacking(
                    id=c.id,
                    required=c.required.to_proto(),
                    code=c.code,
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
            codes=tuple(CodeVersion.from_proto(code) for code in proto.codes),
            trial=CodeTrial.from_proto(proto.trial) if proto.HasField("trial") else None,
            revision=proto.revision,
            containers=tuple(
                ContainerPacking(
                    id=c.id,
                    required=Resources.from_proto(c.required),
                    code=c.code,
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
