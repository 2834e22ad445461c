"""The audit log: a line of JSON for whatever a user has begun to change, and one for how it ended.

    {"time": "2026-01-31T12:00:00.000Z", "id": "5f0c…", "user": "ada", "access": "submit", "source": "10.0.0.7",
     "action": "kill", "topology": "local/ada/default/words", "force": false, "keep_state": true, "outcome": "started"}
    {… "result": "Killed", "outcome": "done", "seconds": 1.2}

Outcomes are `started`, then `done` (with the result: `Planned` and `Unchanged` have changed nothing) or `failed` (with
status and error), or alone `refused`. What was asked for is there, too: `dry_run`, numbers of tasks and containers, the
SHA-256 of a program, names of configuration keys. A line is written and synced before anything is changed, and what
cannot be written down is not done. Secrets are not in it: neither tokens nor arguments nor values of the configuration.

A file that would become larger than `bytes_max` is renamed to `<name>.<time>`, and only the newest `files_max` of these
are kept. Which ones were removed is in the log itself, as `{"action": "rotate", "removed": […]}`. Renaming the file, as
logrotate does, works at any time, too.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heronpy.config import MIB
from heronpy.errors import StateError
from heronpy.files import lock_within

log = logging.getLogger(__name__)

BYTES_MAX = 16 * MIB
FILES_MAX = 64
LOCK_S = 10.0
_CHARACTERS_MAX = 500


class AuditLog:
    """A file that is only appended to. May be used by several threads and processes at once."""

    def __init__(
        self, path: Path, *, bytes_max: int = BYTES_MAX, files_max: int = FILES_MAX, lock_s: float = LOCK_S
    ) -> None:
        """Open it.

        Args:
            path: Of the file.
            bytes_max: How large it may become.
            files_max: How many earlier ones are kept; 0: all.
            lock_s: How long is waited for those who write it, or hold its lock.

        Raises:
            StateError: it cannot be written.
        """
        self.path = path
        self._bytes_max, self._files_max = bytes_max, files_max
        self._lock, self._lock_s = threading.Lock(), lock_s
        with self._errors():
            os.close(self._open())

    def record(self, **fields: Any) -> None:
        """Append a line; on return it is on disk.

        Raises:
            StateError: it cannot be written, or somebody else has held it for too long.
        """
        line = _line(fields)
        with self._turn(), self._errors(), self._locked() as fd:
            size = os.fstat(fd).st_size
            if not size or size + len(line) <= self._bytes_max or not self._renamed():
                self._append(fd, line)
                return
            with self._locked() as new:
                self._remove_surplus(new)
                self._append(new, line)

    def _renamed(self) -> bool:
        """Rename the file, if that can be done: the directory may be another user's. Else it grows."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        try:
            os.rename(self.path, self.path.with_name(f"{self.path.name}.{now}"))
        except OSError as e:
            log.warning("the audit log %s cannot be renamed, and grows: %s", self.path, e.strerror)
            return False
        return True

    def _append(self, fd: int, line: bytes) -> None:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line  # the disk was full, and the last one is torn
        if os.write(fd, line) < len(line):
            raise StateError(f"the audit log {self.path} cannot be written: the disk is full")
        os.fsync(fd)

    def _remove_surplus(self, fd: int) -> None:
        """Remove the oldest files of which there are too many, after that is written down."""
        earlier = sorted(self.path.parent.glob(f"{glob.escape(self.path.name)}.*Z"))
        surplus = earlier[: -self._files_max] if self._files_max else []
        if surplus:
            self._append(fd, _line({"action": "rotate", "removed": [path.name for path in surplus]}))
        for path in surplus:
            log.warning("the audit log %s is removed: there are more than %d", path, self._files_max)
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread at a time."""
        if not self._lock.acquire(timeout=self._lock_s):
            raise self._held()
        try:
            yield
        finally:
            self._lock.release()

    def _held(self) -> StateError:
        return StateError(f"another process has held the audit log {self.path} for {self._lock_s:g} s: is it stopped?")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, which no other process writes or renames meanwhile."""
        while True:
            fd = self._open()
            try:
                if not lock_within(fd, self._lock_s):
                    raise self._held()
                if not self._is_current(fd):
                    continue
                yield fd
                return
            finally:
                os.close(fd)

    def _is_current(self, fd: int) -> bool:
        """Whether it is still the file of this name: another process may have renamed it before it was locked."""
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise StateError(f"the audit log {self.path} cannot be written: {e.strerror}") from e


def _line(fields: dict[str, Any]) -> bytes:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    values = {key: value[:_CHARACTERS_MAX] if isinstance(value, str) else value for key, value in fields.items()}
    return (json.dumps({"time": now, **values}) + "\n").encode()
