"""Values and exceptions of user code in messages: on one line, not too long, and whatever they do when they are shown.

A `__repr__` or `__str__` of the user's may raise, return megabytes, or half of a surrogate pair, which can neither be
logged nor sent. What went wrong before that is to be known all the same.
"""

from __future__ import annotations

import traceback
from typing import Any

_CHARACTERS = 200
_SAID_CHARACTERS = 2000
_TRACEBACK_CHARACTERS = 16_000


def shown(value: Any, characters: int = _CHARACTERS) -> str:
    """A value, in about so many characters at most."""
    try:
        text = repr(value)
    except BaseException as error:  # also for an int of thousands of digits in it
        text = f"<{type(value).__qualname__}, whose repr raises {type(error).__name__}>"
    return _one_line(text, characters)


def said(error: BaseException) -> str:
    """What an exception says, with its class: `ValueError: not a number`."""
    name, text = type(error).__name__, message(error)
    return name if text == name else f"{name}: {text}"


def message(error: BaseException) -> str:
    """What an exception says; its class if that is nothing."""
    try:
        text = str(error)
    except BaseException as raised:
        return f"<{type(error).__name__}, whose str raises {type(raised).__name__}>"
    return _one_line(text, _SAID_CHARACTERS) or type(error).__name__


def traceback_of(error: BaseException) -> str:
    """The traceback of an exception. A message that is too long is cut, not what is before and behind it."""
    text = "".join(traceback.format_exception(error))
    if len(text) > _TRACEBACK_CHARACTERS:
        text = "".join(_cut(line, _SAID_CHARACTERS) for line in text.splitlines(keepends=True))
    if len(text) > _TRACEBACK_CHARACTERS:
        half = _TRACEBACK_CHARACTERS // 2
        text = f"{text[:half]}…\n…{text[-half:]}"
    return encodable(text)


def encodable(text: str) -> str:
    """A text that can be sent and written: halves of surrogate pairs are escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _one_line(text: str, characters: int) -> str:
    return encodable(_cut(" ".join(text[: 10 * characters].split()), characters))


def _cut(line: str, characters: int) -> str:
    if len(line) <= characters:
        return line
    return f"{line[:characters]}…" + "\n" * line.endswith("\n")
