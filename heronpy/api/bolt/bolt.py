"""The bases of the user's bolts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heronpy.api.bolt.base_bolt import BaseBolt
from heronpy.api.tuple import Tuple

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class Bolt(BaseBolt):
    """Takes tuples in and may emit others. Declare `outputs` and implement `process()`.

    As in Heron, the bolt acks every tuple itself. Set `auto_ack` and `auto_anchor`, or use `BasicBolt`, to have it done
    by the engine. A tuple fails when `process()` raises.
    """

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Called once, before the first tuple.

        Args:
            config: the topology's configuration, overridden by the component's, with numbers and booleans typed.
            context: the task's place in the topology.
        """

    def process(self, tup: Tuple) -> None:
        """Called for every tuple. Must be implemented."""
        raise NotImplementedError(f"{type(self).__name__} does not implement process()")

    def process_tick(self, tup: Tuple) -> None:
        """Called for every tick tuple (see `topology.tick.tuple.freq.ms`). Ticks need no ack."""

    # on_timer(self, timer: Timer) is called for every timer of a bolt that has it; see `heronpy.api.timers`.

    def cleanup(self) -> None:
        """Called when the task ends gracefully; never when its process is killed."""


class BasicBolt(Bolt):
    """A bolt that only computes: everything emitted is anchored to the tuple in hand, which is acked when `process()`
    returns and failed when it raises. Raise `FailedException` to fail it on purpose."""

    auto_ack = True
    auto_anchor = True
    auto_fail = True
