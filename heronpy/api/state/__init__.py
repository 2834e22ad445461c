"""State that outlives an instance."""

from heronpy.api.state.state import HashMapState, State
from heronpy.api.state.stateful_component import IStatefulComponent, ITwoPhaseStatefulComponent, StatefulComponent

__all__ = ["HashMapState", "IStatefulComponent", "ITwoPhaseStatefulComponent", "State", "StatefulComponent"]
