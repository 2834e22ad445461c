"""A key in a window."""

from __future__ import annotations

from typing import Any, NamedTuple

from heronpy.streamlet.window import Window


class KeyedWindow(NamedTuple):
    """What keyed window operations emit their values with."""

    key: Any
    window: Window
