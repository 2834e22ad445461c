"""Keys of views for people."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.window import Window

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def key_label(key: Any) -> str:
    """A key for people, on one line: text as it is, windows and times in ISO 8601."""
    if isinstance(key, str):
        return str(key) if key.isprintable() and key else repr(str(key))
    if isinstance(key, KeyedWindow) and _is_window(key.window):
        return f"{key_label(key.key)} {_window_label(key.window)}"
    if isinstance(key, Window) and _is_window(key):
        return _window_label(key)
    if isinstance(key, (datetime.datetime, datetime.date)):
        return key.isoformat()
    if isinstance(key, (tuple, list)):
        return "(" + ", ".join(key_label(part) for part in key) + ")"
    if isinstance(key, (decimal.Decimal, uuid.UUID)):
        return str(key)
    return repr(key)


def _is_window(window: Any) -> bool:
    return isinstance(window, tuple) and len(window) == 2 and all(isinstance(part, (int, float)) for part in window)


def _window_label(window: tuple[Any, ...]) -> str:
    return "/".join(_time_label(part) for part in window)


def _time_label(seconds: float) -> str:
    try:
        time = _EPOCH + datetime.timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return f"{seconds:g}"
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds" if time.microsecond else "seconds") + "Z"
