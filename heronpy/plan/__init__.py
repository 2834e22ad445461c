"""Logical, packing and physical plan: frozen dataclasses, and their protobuf twins at the edge."""

from heronpy.plan._logical import (
    DEFAULT_STREAM,
    Component,
    GroupingKind,
    InputDecl,
    LogicalPlan,
    Pickled,
    StreamDecl,
    read_config,
    unpickle_plain,
)
from heronpy.plan._packing import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.plan._physical import PhysicalPlan, StmgrLocation, TopologyState

__all__ = [
    "DEFAULT_STREAM",
    "Component",
    "ContainerPacking",
    "GroupingKind",
    "InputDecl",
    "InstancePacking",
    "LogicalPlan",
    "PackingPlan",
    "PhysicalPlan",
    "Pickled",
    "Resources",
    "StmgrLocation",
    "StreamDecl",
    "TopologyState",
    "read_config",
    "unpickle_plain",
]
