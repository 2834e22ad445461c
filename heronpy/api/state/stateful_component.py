"""Components with state, as Heron has them. `TopologyContext.keyed_state` and its like are easier to use."""

from __future__ import annotations

from heronpy.api.state.state import State


class StatefulComponent:
    """A spout or bolt, mixed with this, that is given its state before `initialize()`.

    The state is a dict of this task with Heron's `get`, `put`, `enumerate` and `clear`. With checkpoints it is saved
    and given back after a failure; without, it is in memory only.
    """

    def init_state(self, state: State) -> None:
        """Called before `initialize()` with the saved state, empty the first time. Keep it: it is what is saved."""

    def pre_save(self, checkpoint_id: str) -> None:
        """Called before the state is saved: put into it what is not there yet."""


IStatefulComponent = StatefulComponent
"""The name that it has in Java."""


class ITwoPhaseStatefulComponent(StatefulComponent):
    """A component with effects outside of the topology, which are prepared in `pre_save` and become final after it."""

    def post_save(self, checkpoint_id: str) -> None:
        """Called when a checkpoint is committed: what was prepared until its `pre_save` may be made final.

        Called again after a failure, if it is not certain that it was. A later checkpoint covers all before.
        """

    def pre_restore(self, checkpoint_id: str) -> None:
        """Called before `cleanup()`, on the object that is about to be replaced by one with the state of a checkpoint.

        What was prepared since that checkpoint is to be undone. Not called if the process died.
        """
