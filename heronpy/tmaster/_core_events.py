"""What the core of a Topology Master receives, and what it asks for, apart from what its parts have of their own."""

from __future__ import annotations

from msgspec import Struct

from heronpy.errors import HeronError
from heronpy.plan import TopologyState
from heronpy.statemgr import Kind
from heronpy.tmaster._checkpoint_calls import CheckpointAsked, RequestWithdrawn
from heronpy.tmaster._checkpointing import CheckpointEvent, KeepCopy, SendOrder
from heronpy.tmaster._state import CloseSession, SendPlan
from heronpy.tmaster._state import Event as TopologyEvent
from heronpy.tmaster._store_effects import StoreEffect, StoreEvent
from heronpy.tmaster._update import UpdateRequested
from heronpy.tmaster.checkpoints import DiscardCheckpoints, FindIntact, WriteManifest


class StateRequested(Struct, frozen=True):
    """Somebody asks for the topology to be activated or deactivated; answered by one `Reply`."""

    call: int
    runtime: TopologyState
    now_s: float


class RestoreRequested(Struct, frozen=True):
    """A restore is to begin: the restore epoch is raised by one, durably, and published with a plan."""

    now_s: float


Event = (
    TopologyEvent
    | StoreEvent
    | StateRequested
    | UpdateRequested
    | CheckpointAsked
    | RequestWithdrawn
    | RestoreRequested
    | CheckpointEvent
)


class Activated(Struct, frozen=True):
    """The leader has read the state back: from now on it may be asked anything."""

    follow: tuple[Kind, ...]
    """Report the changes of these nodes."""


class Reply(Struct, frozen=True):
    """The answer to a request."""

    call: int
    error: str
    """Empty: it was done."""


class Finish(Struct, frozen=True):
    """End this process; nothing more is done."""

    error: HeronError


Effect = (
    StoreEffect
    | SendPlan
    | SendOrder
    | CloseSession
    | Activated
    | Reply
    | KeepCopy
    | WriteManifest
    | DiscardCheckpoints
    | FindIntact
    | Finish
)
