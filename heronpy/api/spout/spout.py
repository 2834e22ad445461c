"""The base of the user's spouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heronpy.api.spout.base_spout import BaseSpout

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class Spout(BaseSpout):
    """Brings tuples in. Declare `outputs` and implement `next_tuple()`. One thread calls all methods."""

    kept_through_rollbacks = False
    """At least once with checkpoints: whether the object survives a rollback, and re-emits what is reported to have
    failed, though it declares state. One without state always does. If it has `go_back(checkpoint_id, saved)`, that is
    called with what the checkpoint has of the state of `init_state`."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Called once, before everything else.

        Args:
            config: the topology's configuration, overridden by the component's, with numbers and booleans typed.
            context: the task's place in the topology.
        """

    def close(self) -> None:
        """Called when the task ends gracefully; never when its process is killed."""

    def next_tuple(self) -> None:
        """Called over and over: emit what there is, and return. Must be implemented.

        Not called while too many tuples are pending, under backpressure, or while the topology is deactivated. When
        nothing was emitted the engine pauses for a moment, so there is no need to sleep.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement next_tuple()")

    def ack(self, tup_id: Any) -> None:
        """The tuple emitted with this id, and all that came of it, is processed."""

    def fail(self, tup_id: Any) -> None:
        """The tuple emitted with this id was failed by a bolt, or timed out: emit it again, or let it go."""

    def activate(self) -> None:
        """Called when the topology is activated after a deactivation."""

    def deactivate(self) -> None:
        """Called when the topology is deactivated."""
