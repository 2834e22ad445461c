"""The audit log: a line of JSON for whatever a user has begun to change, and one for how it ended.

    {"time": "2026-01-31T12:00:00.000Z", "id": "5f0c…", "user": "ada", "access": "submit", "source": "10.0.0.7",
     "action": "kill", "topology": "local/ada/default/words", "outcome": "started"}
    {… "outcome": "done", "seconds": 1.2}

Outcomes are `started`, then `done` or `failed` (with status and error), or alone `refused`. A line is written and
synced before anything is changed, and what cannot be written down is not done. Lines are only ever appended; to rotate
the file, rename it. Secrets are not in it: neither tokens nor configuration.
"""

from __future__ import annotations

import datetime
import json
import os
import threading
from pathlib import Path
from typing import Any

from heronpy.errors import StateError

_CHARACTERS_MAX = 500


class AuditLog:
    """A file that is only appended to. May be used by several threads and processes at once."""

    def __init__(self, path: Path) -> None:
        """Raises StateError if it cannot be written."""
        self.path = path
        self._lock = threading.Lock()
        os.close(self._open())

    def record(self, **fields: Any) -> None:
        """Append a line; on return it is on disk.

        Raises:
            StateError: it cannot be written.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = {key: value[:_CHARACTERS_MAX] if isinstance(value, str) else value for key, value in fields.items()}
        line = json.dumps({"time": now, **values}) + "\n"
        with self._lock:
            fd = self._open()
            try:
                if os.write(fd, line.encode()) < len(line.encode()):
                    raise StateError(f"the audit log {self.path} cannot be written: the disk is full")
                os.fsync(fd)
            except OSError as e:
                raise StateError(f"the audit log {self.path} cannot be written: {e.strerror}") from e
            finally:
                os.close(fd)

    def _open(self) -> int:
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(self.path, flags, 0o600)
        except OSError as e:
            raise StateError(f"the audit log {self.path} cannot be written: {e.strerror}") from e
