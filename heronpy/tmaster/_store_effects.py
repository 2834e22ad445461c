"""What the Topology Master's decisions ask of the state manager, and its answers.

Every effect is answered once, by its own event or by `StoreFailed`; an effect that failed may or may not have happened.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from heronpy.statemgr import Kind


class ClaimNode(Struct, frozen=True):
    """Create the ephemeral node of the active Topology Master unless it exists. Answered by `NodeClaimed`."""

    location: bytes


class ReadNodes(Struct, frozen=True):
    """Read some nodes of the topology. Answered by `NodesRead`."""

    kinds: tuple[Kind, ...]


class WriteNode(Struct, frozen=True):
    """`StateManager.set_if`. Answered by `NodeWritten`."""

    kind: Kind
    value: bytes
    expected: bytes | None
    of: Kind


StoreEffect = ClaimNode | ReadNodes | WriteNode


class NodeClaimed(Struct, frozen=True):
    claim: ClaimNode
    owned: bool
    """Whether the node has this Topology Master's location now."""
    now_s: float


class NodesRead(Struct, frozen=True):
    read: ReadNodes
    values: Mapping[Kind, bytes | None]
    now_s: float


class NodeWritten(Struct, frozen=True):
    write: WriteNode
    done: bool
    """False: the condition did not hold, and nothing was written."""
    now_s: float


class StoreFailed(Struct, frozen=True):
    effect: StoreEffect
    reason: str
    now_s: float


class NodeChanged(Struct, frozen=True):
    """A node that is followed has another value, or none."""

    kind: Kind
    value: bytes | None
    now_s: float


StoreEvent = NodeClaimed | NodesRead | NodeWritten | StoreFailed | NodeChanged
