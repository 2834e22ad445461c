"""Log lines that are JSON, as text. Pure."""

from __future__ import annotations

import json
from typing import Any

_FIELDS = ("ts", "level", "logger", "message")


def readable(data: bytes) -> bytes:
    """Whole lines of a log, with those that are JSON as a text log has them; all others as they are."""
    lines = data.split(b"\n")
    if not any(line.startswith(b"{") for line in lines):
        return data
    return b"\n".join(_line(line) for line in lines)


def _line(line: bytes) -> bytes:
    record = _record(line)
    if record is None:
        return line
    text = f"{record['ts']} {record['level']} {record.get('pid', '')} {record['logger']}: {record['message']}"
    for more in ("exc", "stack"):
        if record.get(more):
            text += f"\n{record[more]}"
    return text.encode("utf-8", "backslashreplace")


def _record(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # user code may have written anything, and the last line may be half a line
        return None
    return record if isinstance(record, dict) and all(field in record for field in _FIELDS) else None
