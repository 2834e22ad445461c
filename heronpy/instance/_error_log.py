"""The log of what user code raises: all of it as long as it is readable, and a number for the rest.

A component that raises for every tuple under the policy `fail` would otherwise write a thousand tracebacks a second:
its time and its rotated log files would hold nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

PER_SECOND = 10
"""Exceptions of one kind that are logged in a second."""
KINDS_MAX = 64
"""Kinds that are distinguished; the one that was logged first is evicted."""
_SECOND_NS = 1_000_000_000

Kind = tuple[str, type[BaseException], str, int]
"""Where it was called, what it raised, and the file and line that raised it."""


@dataclass(slots=True)
class _Second:
    since_ns: int
    logged: int = 0
    left_out: int = 0


class ErrorLog:
    """Logs the exceptions of one task."""

    def __init__(self, logger: logging.Logger, component: str, clock: Callable[[], int]) -> None:
        self._logger = logger
        self._component = component
        self._clock = clock
        self._kinds: dict[Kind, _Second] = {}

    def log(self, where: str, error: BaseException, text: str) -> None:
        """Log an exception that was raised in `where`, or count it; `text` is its traceback."""
        now_ns = self._clock()
        kind = (where, type(error), *_place(error))
        second = self._kinds.get(kind)
        if second is None or now_ns - second.since_ns >= _SECOND_NS:
            left_out = self._kinds.pop(kind).left_out if second is not None else 0
            if left_out:
                self._logger.error("%d more like this one were not logged: %s", left_out, _short(kind))
            if len(self._kinds) >= KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
            second = self._kinds[kind] = _Second(now_ns)
        if second.logged == PER_SECOND:
            second.left_out += 1
            return
        second.logged += 1
        self._logger.error("exception in %s of %s:\n%s", where, self._component, text)


def _place(error: BaseException) -> tuple[str, int]:
    """File and line that raised it."""
    traceback = error.__traceback__
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno


def _short(kind: Kind) -> str:
    where, error, file, line = kind
    return f"{error.__name__} in {where}, {file}:{line}"
