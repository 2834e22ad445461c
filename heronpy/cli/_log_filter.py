"""Which lines of logs are shown: those with a text in them, those since a time. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from heronpy.cli._durations import seconds
from heronpy.errors import UsageError

_STAMP = re.compile(rb'(?:\{"ts": ")?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)?)')


def since_of(text: str, now_s: float) -> float:
    """A time since the epoch, from `10m` (ago) or an ISO 8601 time; without a zone it is local time.

    Raises:
        UsageError: it is neither.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass
    try:
        return now_s - seconds("--since", text)
    except UsageError:
        raise UsageError(f"--since {text!r} must be a time like 10m (ago) or 2026-01-31T12:00") from None


def line_time(line: bytes) -> float | None:
    """When a line was logged, since the epoch; None if it does not say. Text logs are in local time."""
    found = _STAMP.match(line)
    if found is None:
        return None
    try:
        return datetime.fromisoformat(found[1].decode().replace(",", ".")).timestamp()
    except (ValueError, OverflowError):
        return None


@dataclass(slots=True)
class LineFilter:
    """Of the lines of one file, given in order, those that are to be shown."""

    text: bytes = b""
    since_s: float = 0.0
    recent: bool = False
    """Whether lines before the first one with a time are of the time asked for."""

    def __call__(self, data: bytes) -> bytes:
        """Whole lines; a line without a time of its own belongs to the one before it."""
        if not self.text and not self.since_s:
            return data
        return b"".join(line for line in data.splitlines(keepends=True) if self._shown(line))

    def _shown(self, line: bytes) -> bool:
        if self.since_s and (at_s := line_time(line)) is not None:
            self.recent = at_s >= self.since_s
        return self.text in line and (self.recent or not self.since_s)
