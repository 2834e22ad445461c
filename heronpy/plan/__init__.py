"""Logical, packing and physical plan: frozen dataclasses, and their protobuf twins at the edge."""

from heronpy.plan._code import CodeTrial, CodeVersion
from heronpy.plan._cycles import feedback_edges
from heronpy.plan._logical import (
    DEFAULT_STREAM,
    Component,
    GroupingKind,
    InputDecl,
    LogicalPlan,
    StreamDecl,
)
from heronpy.plan._operators import OPERATORS_KEY, Operator, chain, operators_of, write_operators
from heronpy.plan._packing import MASTER, ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.plan._physical import PhysicalPlan, StmgrLocation, TopologyState
from heronpy.plan._values import Pickled, as_plain, key_value, read_config

__all__ = [
    "DEFAULT_STREAM",
    "MASTER",
    "OPERATORS_KEY",
    "CodeTrial",
    "CodeVersion",
    "Component",
    "ContainerPacking",
    "GroupingKind",
    "InputDecl",
    "InstancePacking",
    "LogicalPlan",
    "Operator",
    "PackingPlan",
    "PhysicalPlan",
    "Pickled",
    "Resources",
    "StmgrLocation",
    "StreamDecl",
    "TopologyState",
    "as_plain",
    "chain",
    "feedback_edges",
    "key_value",
    "operators_of",
    "read_config",
    "write_operators",
]
