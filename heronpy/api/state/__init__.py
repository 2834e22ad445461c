"""State that outlives an instance."""

from heronpy.api.state.state import HashMapState, State
from heronpy.api.state.stateful_component import StatefulComponent

__all__ = ["HashMapState", "State", "StatefulComponent"]
