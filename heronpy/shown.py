"""Values and exceptions of user code in messages: on one line, not too long, and whatever they do when they are shown.

A `__repr__` or `__str__` of the user's may raise, return megabytes, or half of a surrogate pair, which can neither be
logged nor sent. What went wrong before is to be said all the same.
"""

from __future__ import annotations

from typing import Any

_CHARACTERS = 200
_SAID_CHARACTERS = 2000


def shown(value: Any, characters: int = _CHARACTERS) -> str:
    """A value, in at most so many characters."""
    try:
        text = repr(value)
    except Exception as error:  # also an int of thousands of digits in it
        text = f"<{type(value).__qualname__}, whose repr raises {type(error).__name__}>"
    return _one_line(text, characters)


def said(error: BaseException) -> str:
    """What an exception says: `ValueError: not a number`."""
    name = type(error).__name__
    text = message(error)
    return name if text == name else f"{name}: {text}"


def message(error: BaseException) -> str:
    """What an exception says without its class, unless it says nothing."""
    try:
        text = str(error)
    except Exception as raised:
        text = f"its str raises {type(raised).__name__}"
    return _one_line(text, _SAID_CHARACTERS) or type(error).__name__


def encodable(text: str) -> str:
    """A text that can be sent and written: halves of surrogate pairs are escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _one_line(text: str, characters: int) -> str:
    line = encodable(" ".join(text[: 2 * characters].split()))
    return line if len(line) <= characters and len(text) <= 2 * characters else f"{line[:characters]}…"
