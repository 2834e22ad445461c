"""The events that the core of a Stream Manager takes (in the past tense) and the effects that it asks for.

Links are numbered by the owner of the connections; a connection that replaces another has a number of its own. Times
are of a monotonic clock. They are Structs and not dataclasses: some are made for every frame, and all at every start.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from heronpy.plan import PhysicalPlan
from heronpy.proto import checkpoint_pb2, stmgr_pb2, tmaster_pb2

# -- events ------------------------------------------------------------------------------------------------------------


class PlanReceived(Struct, frozen=True):
    """The Topology Master has sent a physical plan."""

    plan: PhysicalPlan
    now_ns: int


class OrdersReceived(Struct, frozen=True):
    """With checkpoints: the Topology Master has sent orders for the attached instances."""

    orders: Sequence[checkpoint_pb2.CheckpointOrder]
    now_ns: int


class LinkOpened(Struct, frozen=True):
    """An instance or a peer of the plan is connected. It replaces an older link with the same name."""

    link: int
    name: str
    now_ns: int
    incarnation: int = 0
    """Of the container at the other end."""


class LinkClosed(Struct, frozen=True):
    """A link is gone, and with it the frame that was being written."""

    link: int
    now_ns: int


class FrameReceived(Struct, frozen=True):
    """A frame was read from a link."""

    link: int
    frame: stmgr_pb2.Frame
    size: int
    """Of the serialized frame, in bytes."""
    now_ns: int


class WriteReady(Struct, frozen=True):
    """The link can take a frame: it was just opened, or a `Wake` or `WakeAt` has come to pass."""

    link: int
    now_ns: int


class FrameWritten(Struct, frozen=True):
    """The frame of the last `WriteFrame` was handed to the connection, which can take another one."""

    link: int
    now_ns: int


class SpillWritten(Struct, frozen=True):
    """A segment is on disk."""

    outbox: str
    segment: int
    now_ns: int


class SpillRead(Struct, frozen=True):
    """A segment was read back, and is no longer on disk."""

    outbox: str
    segment: int
    data: bytes
    now_ns: int


class SpillFailed(Struct, frozen=True):
    """A segment could not be written. It is written again when time has passed."""

    outbox: str
    segment: int
    error: str
    now_ns: int


class TimePassed(Struct, frozen=True):
    """About a second has passed since the last one."""

    now_ns: int


Event = (
    PlanReceived
    | OrdersReceived
    | LinkOpened
    | LinkClosed
    | FrameReceived
    | WriteReady
    | FrameWritten
    | SpillWritten
    | SpillRead
    | SpillFailed
    | TimePassed
)

# -- effects -----------------------------------------------------------------------------------------------------------


class WriteFrame(Struct, frozen=True):
    """Write these bytes to a link, then report `FrameWritten`."""

    link: int
    data: bytes


class Wake(Struct, frozen=True):
    """Report `WriteReady` for a link: something waits for it."""

    link: int


class WakeAt(Struct, frozen=True):
    """Report `WriteReady` for a link at a time, or at a `Wake` before it."""

    link: int
    at_ns: int


class HoldReads(Struct, frozen=True):
    """Read no more frames from a link. One whose reading is under way may still come."""

    link: int


class ResumeReads(Struct, frozen=True):
    """Read frames from a link again."""

    link: int


class CloseLink(Struct, frozen=True):
    """Close a link, then report `LinkClosed`."""

    link: int
    reason: str


class WriteSpill(Struct, frozen=True):
    """Write a segment to disk, then report `SpillWritten` or `SpillFailed`."""

    outbox: str
    segment: int
    data: bytes


class ReadSpill(Struct, frozen=True):
    """Read a segment and delete it, then report `SpillRead`."""

    outbox: str
    segment: int


class DeleteSpill(Struct, frozen=True):
    """Delete a segment, which may not be written yet. No report."""

    outbox: str
    segment: int


class SendToTmaster(Struct, frozen=True):
    """With checkpoints: send a report to the Topology Master, behind those before. It may be lost."""

    message: tmaster_pb2.StmgrMessage


class StopTopology(Struct, frozen=True):
    """Ask the Topology Master to stop the spouts, and to show why. An empty reason takes it back."""

    reason: str


class Log(Struct, frozen=True):
    """Write a line to the log."""

    level: int
    """As in `logging`."""
    text: str


Effect = (
    WriteFrame
    | Wake
    | WakeAt
    | HoldReads
    | ResumeReads
    | CloseLink
    | WriteSpill
    | ReadSpill
    | DeleteSpill
    | SendToTmaster
    | StopTopology
    | Log
)
