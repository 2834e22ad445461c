"""The Topology Master: owns the life of one topology, never its data.

`python -m heronpy.tmaster --dir D --container 0` runs one. `TopologyMaster` is the service; `Core` is what it decides,
with its events and effects, to run it without sockets and clocks.
"""

from heronpy.tmaster._checkpoint_calls import CheckpointAsked
from heronpy.tmaster._checkpointing import Checkpointing, KeepCopy, SendOrder
from heronpy.tmaster._core import Core
from heronpy.tmaster._core_events import (
    Activated,
    Effect,
    Event,
    Finish,
    Reply,
    RestoreRequested,
    StateRequested,
)
from heronpy.tmaster._leadership import Leadership, Role
from heronpy.tmaster._publisher import OfferPlan, PlanPublisher, SavePlan
from heronpy.tmaster._service import TopologyMaster
from heronpy.tmaster._sessions import Outgoing
from heronpy.tmaster._state import (
    CloseSession,
    HeartbeatReceived,
    SendPlan,
    SessionEnded,
    State,
    StmgrRegistered,
    TimePassed,
)
from heronpy.tmaster._store import NodeCopies, carry_out
from heronpy.tmaster._store_effects import (
    ClaimNode,
    NodeChanged,
    NodeClaimed,
    NodesRead,
    NodeWritten,
    ReadNodes,
    StoreEffect,
    StoreEvent,
    StoreFailed,
    WriteNode,
)
from heronpy.tmaster._update import UpdateRequested

__all__ = [
    "Activated",
    "CheckpointAsked",
    "Checkpointing",
    "ClaimNode",
    "CloseSession",
    "Core",
    "Effect",
    "Event",
    "Finish",
    "HeartbeatReceived",
    "KeepCopy",
    "Leadership",
    "NodeChanged",
    "NodeClaimed",
    "NodeCopies",
    "NodeWritten",
    "NodesRead",
    "OfferPlan",
    "Outgoing",
    "PlanPublisher",
    "ReadNodes",
    "Reply",
    "RestoreRequested",
    "Role",
    "SavePlan",
    "SendOrder",
    "SendPlan",
    "SessionEnded",
    "State",
    "StateRequested",
    "StmgrRegistered",
    "StoreEffect",
    "StoreEvent",
    "StoreFailed",
    "TimePassed",
    "TopologyMaster",
    "UpdateRequested",
    "WriteNode",
    "carry_out",
]
