"""Key/value state of a component."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any


class State:
    """What a stateful component may do with its state."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        raise NotImplementedError(f"{type(self).__name__} does not implement put()")

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement get()")

    def delete(self, key: Any) -> Any:
        """Remove a key. Returns its value, None if there was none. Storm's name."""
        raise NotImplementedError(f"{type(self).__name__} does not implement delete()")

    def enumerate(self) -> Iterable[tuple[Any, Any]]:
        """All keys with their values."""
        raise NotImplementedError(f"{type(self).__name__} does not implement enumerate()")

    def clear(self) -> None:
        """Forget everything."""
        raise NotImplementedError(f"{type(self).__name__} does not implement clear()")


class HashMapState(State, MutableMapping[Any, Any]):
    """State in a dict, and usable like one."""

    def __init__(self) -> None:
        self._dict: dict[Any, Any] = {}

    def put(self, key: Any, value: Any) -> None:
        self._dict[key] = value

    def get(self, key: Any, default: Any = None) -> Any:
        return self._dict.get(key, default)

    def delete(self, key: Any) -> Any:
        return self._dict.pop(key, None)

    def enumerate(self) -> Iterable[tuple[Any, Any]]:
        return self._dict.items()

    def clear(self) -> None:
        self._dict.clear()

    def __getitem__(self, key: Any) -> Any:
        return self._dict[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._dict[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._dict[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __str__(self) -> str:
        return str(self._dict)
