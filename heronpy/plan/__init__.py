"""Logical, packing and physical plan: frozen dataclasses, and their protobuf twins at the edge."""

from heronpy.plan._batch_side import BATCH_SIDE_KEY, COMPLETE_BEFORE_METRIC, BatchSide, batch_side_of
from heronpy.plan._code import CodeTrial, CodeVersion, next_version, package_of
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
from heronpy.plan._state_owners import STATE_OWNERS_KEY, StateOwner, state_owners, write_state_owners
from heronpy.plan._values import Pickled, as_plain, key_value, read_config
from heronpy.plan._watermarks import (
    WATERMARK_FIELD_KEY,
    followed_inputs,
    has_event_time,
    passed_on,
    sends_watermarks,
    watermark_fields,
)

__all__ = [
    "BATCH_SIDE_KEY",
    "COMPLETE_BEFORE_METRIC",
    "DEFAULT_STREAM",
    "MASTER",
    "OPERATORS_KEY",
    "STATE_OWNERS_KEY",
    "WATERMARK_FIELD_KEY",
    "BatchSide",
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
    "StateOwner",
    "StmgrLocation",
    "StreamDecl",
    "TopologyState",
    "as_plain",
    "batch_side_of",
    "chain",
    "feedback_edges",
    "followed_inputs",
    "has_event_time",
    "key_value",
    "next_version",
    "operators_of",
    "package_of",
    "passed_on",
    "read_config",
    "sends_watermarks",
    "state_owners",
    "watermark_fields",
    "write_operators",
    "write_state_owners",
]
