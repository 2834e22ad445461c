"""How large the state of one topology may be for a Tracker, which reads that of many users. Pure.

Who can write a node of a state manager decides what is in it. Everything that is made of it later (plans in memory,
answers, indexes by name) is in proportion to what is counted here, so that one topology takes at most some tens of
megabytes and milliseconds from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heronpy.config import MIB
from heronpy.errors import StateError
from heronpy.proto import plan_pb2, state_pb2, topology_pb2
from heronpy.statemgr import Kind

NODE_BYTES_MAX = 4 * MIB
"""ZooKeeper's own limit is 1 MiB."""
NAME_MAX = 255
PATH_MAX = 4096
COMPONENTS_MAX = 2_000
PARTS_MAX = 20_000
"""Most streams, fields, inputs and configuration values of one topology, each and together."""
INSTANCES_MAX = 20_000


def check_nodes(values: Mapping[Kind, bytes | None]) -> None:
    """Refuse nodes that are too large to be read."""
    for kind, value in values.items():
        if value is not None:
            _at_most(len(value), NODE_BYTES_MAX, f"bytes of {kind.value}")


def check_execution(execution: state_pb2.ExecutionState) -> None:
    """Refuse names that could not be a topology's."""
    e = execution
    _names((e.cluster, e.role, e.environ, e.topology, e.topology_id, e.submission_user, e.release_version))
    _at_most(len(e.topology_dir), PATH_MAX, "characters of its directory")


def check_definition(topology: topology_pb2.Topology) -> None:
    """Refuse a definition with too many parts."""
    _at_most(len(topology.spouts) + len(topology.bolts), COMPONENTS_MAX, "components")
    parts = len(topology.topology_config.kvs)
    for spout in topology.spouts:
        parts += len(spout.comp.config.kvs) + _fields(spout.outputs)
    for bolt in topology.bolts:
        parts += len(bolt.comp.config.kvs) + _fields(bolt.outputs)
        parts += sum(1 + len(i.grouping_fields.keys) for i in bolt.inputs)
    _at_most(parts, PARTS_MAX, "streams, fields, inputs and configuration values")
    _names(c.comp.name for cs in (topology.spouts, topology.bolts) for c in cs)


def check_packing(packing: plan_pb2.PackingPlan, topology: topology_pb2.Topology) -> None:
    """Refuse a packing plan that has too many instances, or some of components that there are not."""
    _at_most(len(packing.containers), INSTANCES_MAX, "containers")
    _at_most(sum(len(container.instances) for container in packing.containers), INSTANCES_MAX, "instances")
    known = {c.comp.name for cs in (topology.spouts, topology.bolts) for c in cs}
    for container in packing.containers:
        for instance in container.instances:
            if instance.component not in known:
                raise StateError("its packing plan has an instance of a component that it has not")


def check_physical(physical: plan_pb2.PhysicalPlan) -> None:
    """Refuse a physical plan with too many parts."""
    _at_most(len(physical.stmgrs), INSTANCES_MAX, "Stream Managers")
    check_definition(physical.topology)
    check_packing(physical.packing, physical.topology)


def _fields(outputs: Iterable[topology_pb2.OutputStream]) -> int:
    return sum(1 + len(out.schema.keys) for out in outputs)


def _names(names: Iterable[str]) -> None:
    for name in names:
        _at_most(len(name), NAME_MAX, "characters in a name")


def _at_most(found: int, most: int, what: str) -> None:
    if found > most:
        raise StateError(f"its state has {found:,} {what}, and {most:,} are the most that a Tracker reads")
