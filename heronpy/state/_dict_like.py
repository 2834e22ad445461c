"""The methods of a dict-like state that are made of others, with the names that Heron and Storm have for them."""

from __future__ import annotations

from collections.abc import ItemsView, MutableMapping
from typing import Any, Final

UNSET: Final = type("Unset", (), {"__repr__": lambda self: "UNSET"})()
"""For arguments: there is none."""


class DictLike(MutableMapping[Any, Any]):
    """What a state inherits: a reader of a value may change it, so these read and write through the subclass."""

    __slots__ = ()

    def pop(self, key: Any, default: Any = UNSET) -> Any:
        """As of a dict."""
        if key not in self:
            if default is UNSET:
                raise KeyError(key)
            return default
        value = self[key]
        del self[key]
        return value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """As of a dict."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """As of a dict."""
        for key in list(self):
            del self[key]

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key, as Heron and Storm write it."""
        self[key] = value

    def delete(self, key: Any) -> Any:
        """Remove a key, as Storm writes it. Returns its value, None if there was none."""
        return self.pop(key, None)

    def enumerate(self) -> ItemsView[Any, Any]:
        """All keys with their values, as Heron writes it."""
        return self.items()
