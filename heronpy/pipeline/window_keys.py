"""Views whose keys are windows: what keys are to users, and the one batch that has all of a key.

A result of a window lies in the batch in which the window ends. So who asks for it need not look into others, and tiers
of such views spare nobody anything by being large: no key of one batch is merged with that of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from heronpy.streamlet.graph import (
    ArchiveNode,
    EventTimeNode,
    FilterNode,
    JoinNode,
    Node,
    ReduceByKeyAndWindowNode,
    ReduceByWindowNode,
    RepartitionNode,
    StoreNode,
    UnionNode,
)
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.window import Window

_SAME_TIMES = (FilterNode, RepartitionNode, UnionNode)
_SAME_KEYS = (*_SAME_TIMES, ArchiveNode, EventTimeNode)
_KEYED: tuple[type[Node], ...] = (ReduceByKeyAndWindowNode, JoinNode)


def key_type(view: StoreNode) -> Callable[[Any], Any]:
    """What keys are to users. Encoded, a window is its plain tuple; the program knows better."""
    return _type_of({*_origins(view.parents[0], _SAME_KEYS)}) or (lambda key: key)


def batch_of(view: StoreNode, batch_length_ms: int) -> Callable[[Any], int | None] | None:
    """Finds the one batch that can have a key, or None where that is not known; None: no key names its batch."""
    typed = _type_of({*_origins(view.parents[0], _SAME_TIMES)})
    if typed is None:
        return None

    def found(key: Any) -> int | None:
        try:
            named = typed(key)
            window = named.window if isinstance(named, KeyedWindow) else named
            return (round(window.end * 1000) - 1) // batch_length_ms
        except (TypeError, ValueError, IndexError, OverflowError):  # it is no window
            return None

    return found


def _type_of(kinds: set[type[Node]]) -> Callable[[Any], Any] | None:
    if kinds and kinds <= {*_KEYED}:
        return _keyed_window
    return _window if kinds == {ReduceByWindowNode} else None


def _origins(node: Node, same: tuple[type[Node], ...]) -> Iterator[type[Node]]:
    """The operations that may have made what a node emits."""
    if isinstance(node, same):
        for parent in node.parents:
            yield from _origins(parent, same)
    else:
        yield type(node)


def _keyed_window(key: Any) -> KeyedWindow:
    return KeyedWindow(key[0], _window(key[1]))


def _window(key: Any) -> Window:
    return Window(float(key[0]), float(key[1]))
