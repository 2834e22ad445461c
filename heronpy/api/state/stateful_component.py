"""Components with state."""

from __future__ import annotations

from heronpy.api.state.state import State


class StatefulComponent:
    """A spout or bolt, mixed with this, whose state is saved at checkpoints and given back after a failure."""

    def init_state(self, state: State) -> None:
        """Called before `initialize()` with the saved state, empty the first time. Keep it: it is what is saved."""

    def pre_save(self, checkpoint_id: str) -> None:
        """Called before the state is saved: put into it what is not there yet."""
