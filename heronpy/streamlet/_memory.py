"""What operators and generators remember: each has a state of its own in that of its task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from heronpy.api.state import HashMapState, State


class OperatorState(State, MutableMapping[Any, Any]):
    """The state of one operator or generator: a part of that of its task, which has several."""

    def __init__(self, of_task: MutableMapping[Any, Any], name: str) -> None:
        self._of_task = of_task
        self._name = name

    def put(self, key: Any, value: Any) -> None:
        self._of_task[self._name, key] = value

    def get(self, key: Any, default: Any = None) -> Any:
        return self._of_task.get((self._name, key), default)

    def delete(self, key: Any) -> Any:
        return self._of_task.pop((self._name, key), None)

    def enumerate(self) -> Iterable[tuple[Any, Any]]:
        return self.items()

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def __getitem__(self, key: Any) -> Any:
        return self._of_task[self._name, key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._of_task[self._name, key] = value

    def __delitem__(self, key: Any) -> None:
        del self._of_task[self._name, key]

    def __iter__(self) -> Iterator[Any]:
        return iter([key for name, key in self._of_task if name == self._name])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __str__(self) -> str:
        return str(dict(self))


class Memory:
    """The state that a task was given by `init_state`, for all of its operators."""

    def __init__(self, state: Any, *, saved: bool) -> None:
        """Take it.

        Args:
            state: what `init_state` was given, a dict.
            saved: whether it is saved at checkpoints.
        """
        self._state = state
        self._saved = saved

    def of(self, name: str) -> State:
        """The state of an operator."""
        return OperatorState(self._state, name) if self._saved else HashMapState()

    def owners(self) -> set[str]:
        """The operators that have any."""
        return {name for name, _ in self._state} if self._saved else set()

    def drop(self, name: str) -> None:
        """Forget what an operator had."""
        OperatorState(self._state, name).clear()

    def go_back(self, name: str, saved: Mapping[Any, Any]) -> None:
        """Have an operator remember what it did when the state of its task was saved."""
        OperatorState(self._state, name).clear()
        self._state.update({key: value for key, value in saved.items() if key[0] == name})


__all__ = ["Memory", "OperatorState"]
