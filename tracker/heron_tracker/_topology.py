"""What the Tracker knows of one topology: what the state manager says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from heron_tracker._limits import check_definition, check_execution, check_nodes, check_packing, check_physical
from heronpy.config import MIB, takes_checkpoints
from heronpy.errors import StateError
from heronpy.pipeline.record import Record, read_record
from heronpy.plan import BatchSide, LogicalPlan, PackingPlan, PhysicalPlan, TopologyState, batch_side_of
from heronpy.proto import plan_pb2, state_pb2, topology_pb2
from heronpy.statemgr import Kind

KINDS = (
    Kind.EXECUTIONSTATE,
    Kind.TOPOLOGIES,
    Kind.PACKINGPLANS,
    Kind.PPLANS,
    Kind.SCHEDULERS,
    Kind.TMASTERS,
    Kind.PIPELINES,
)
"""What is watched of every topology."""

_STATUS = {TopologyState.RUNNING: "Running", TopologyState.PAUSED: "Paused", TopologyState.KILLED: "Killed"}


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Names one topology among all that a Tracker knows."""

    cluster: str
    role: str
    environ: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.role}/{self.environ} {self.name}"


Identity = tuple[str, Key, str]
"""Names one submission as one state manager describes it. Another one, or another name in it, may have the same id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One topology. Each new value from the state manager makes a new one of these."""

    statemgr: str
    execution: state_pb2.ExecutionState
    logical: LogicalPlan
    state: TopologyState
    packing: PackingPlan | None = None
    physical: PhysicalPlan | None = None
    scheduler: state_pb2.SchedulerLocation | None = None
    tmaster: state_pb2.TmasterLocation | None = None
    tmaster_lost_s: float | None = None
    """Since when (seconds since the epoch) there is no Topology Master; None while there is one."""

    pipeline: Record | None = None
    """What a batch run has last reported of the program's batch side."""
    pipeline_problem: str = ""
    """Why such a report cannot be read."""

    @property
    def key(self) -> Key:
        e = self.execution
        return Key(e.cluster, e.role, e.environ, e.topology)

    @property
    def id(self) -> str:
        return self.execution.topology_id

    @property
    def identity(self) -> Identity:
        """What everything is kept by that belongs to this submission: see `Identity`."""
        return self.statemgr, self.key, self.id

    @property
    def directory(self) -> Path:
        """Its directory on the host it was submitted from (and on those that share its file system)."""
        return Path(self.execution.topology_dir)

    @property
    def status(self) -> str:
        """Heron's word for its state: Running, Paused, Killed."""
        return _STATUS[self.state]

    @property
    def takes_checkpoints(self) -> bool:
        """Whether its configuration asks for checkpoints."""
        try:
            return takes_checkpoints(self.logical.config)
        except ValueError:  # no mode at all: anybody may have written it
            return False

    @property
    def batch_side(self) -> BatchSide | None:
        """What its program has for a batch side; None if it has none."""
        return batch_side_of(self.logical.config)

    def instances(self, component: str | None = None) -> list[str]:
        """The ids of the instances of a component, or of all."""
        if self.packing is None:
            return []
        return [
            instance.instance_id(container.id)
            for container in self.packing.containers
            for instance in container.instances
            if component in (None, instance.component)
        ]

    def processes(self) -> dict[str, int]:
        """The ids of all instances and Stream Managers, each with its container."""
        if self.packing is None:
            return {}
        stmgrs = {container.stmgr_id: container.id for container in self.packing.containers}
        return stmgrs | {i.instance_id(c.id): c.id for c in self.packing.containers for i in c.instances}

    def memory_mb(self) -> dict[str, float]:
        """What each instance may use, in MiB, by its id."""
        if self.packing is None:
            return {}
        return {
            instance.instance_id(container.id): instance.resources.ram_bytes / MIB
            for container in self.packing.containers
            for instance in container.instances
        }

    def containers(self) -> list[int]:
        """All container numbers, with that of the Topology Master."""
        return [0, *(container.id for container in self.packing.containers)] if self.packing is not None else [0]

    def hosts(self) -> dict[int, str]:
        """The host of every container that has a Stream Manager in the physical plan."""
        return {stmgr.container: stmgr.host for stmgr in self.physical.stmgrs} if self.physical is not None else {}


def assemble(statemgr: str, values: dict[Kind, bytes | None], before: Topology | None, now_s: float) -> Topology | None:
    """A topology from the values of its nodes; None without an execution state or a definition: it is gone, or comes.

    Raises:
        StateError: it is larger than a Tracker reads.
        Exception: a value is damaged. protobuf and the plans raise what they like.
    """
    check_nodes(values)
    execution, definition = values.get(Kind.EXECUTIONSTATE), values.get(Kind.TOPOLOGIES)
    if not execution or not definition:
        return None
    proto = topology_pb2.Topology.FromString(definition)
    check_definition(proto)
    state = state_pb2.ExecutionState.FromString(execution)
    check_execution(state)
    topology = Topology(
        statemgr=statemgr,
        execution=state,
        logical=LogicalPlan.from_proto(proto),
        state=TopologyState(proto.state),
    )
    if raw := values.get(Kind.PACKINGPLANS):
        found_packing = plan_pb2.PackingPlan.FromString(raw)
        check_packing(found_packing, proto)
        packing = PackingPlan.from_proto(found_packing)
        defined = packing.definition(proto)
        check_definition(defined)
        logical = LogicalPlan.from_proto(defined).with_parallelism(packing.parallelism)
        topology = replace(topology, packing=packing, logical=logical)
    if raw := values.get(Kind.PPLANS):
        found = plan_pb2.PhysicalPlan.FromString(raw)
        check_physical(found)
        physical = PhysicalPlan.from_proto(found)
        if physical.logical.id == proto.id:  # else it was left behind by an earlier topology of the same name
            topology = replace(topology, physical=physical)
    topology = _with_pipeline(topology, values.get(Kind.PIPELINES))
    if raw := values.get(Kind.SCHEDULERS):
        topology = replace(topology, scheduler=state_pb2.SchedulerLocation.FromString(raw))
    if raw := values.get(Kind.TMASTERS):
        return replace(topology, tmaster=state_pb2.TmasterLocation.FromString(raw))
    lost_s = before.tmaster_lost_s if before is not None and before.tmaster is None else None
    return replace(topology, tmaster_lost_s=lost_s if lost_s is not None else now_s)


def _with_pipeline(topology: Topology, value: bytes | None) -> Topology:
    """With what is reported of its batch side. What cannot be read of that takes nothing from the rest."""
    if not value or topology.batch_side is None:
        return topology
    try:
        record = read_record(value)
    except StateError as e:
        return replace(topology, pipeline_problem=str(e))
    # That of an earlier topology of the same name may have had another batch side.
    return replace(topology, pipeline=record) if record.topology_id == topology.id else topology
