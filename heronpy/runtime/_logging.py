"""What a process logs and prints: two files, `<process>.log` and `<process>.out`, rotated, each of bounded size.

Rotation renames x to x.1, x.1 to x.2 and so on. A log file is rotated before the line that would not fit. What is
printed goes to its file without us, so the process looks at its size once a second and, where it is too large, gives
its own stdout and stderr a new file in one step: nothing is lost, and nobody who prints waits. Only what a child of the
user's code goes on printing stays in the file that it was started with.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from heronpy.config import LoggingConfig

log = logging.getLogger(__name__)

TEXT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
OUT_CHECK_S = 1.0
_FDS = (1, 2)


class JsonLines(logging.Formatter):
    """One JSON object a line.

    Fields: ts (UTC), level, logger, process (its id), pid, topology, message, and exc, the traceback if there is one.
    """

    def __init__(self, *, topology: str, process: str) -> None:
        super().__init__()
        self._topology = topology
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": self._process,
            "pid": record.process,
            "topology": self._topology,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, ensure_ascii=False)


class LogFile(logging.Handler):
    """A log file that is rotated before it gets larger than `file_bytes`; `files` old ones are kept."""

    def __init__(self, path: Path, *, file_bytes: int, files: int) -> None:
        super().__init__()
        self.path = path
        self.file_bytes = file_bytes
        self.files = files
        self._file: BinaryIO | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # Half a surrogate pair has no UTF-8. Its escape is also one of JSON.
            self._append((self.format(record) + "\n").encode("utf-8", "backslashreplace"))
        except Exception:
            self.handleError(record)  # as every handler: a log that cannot be written ends nothing

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            if self._file is not None:
                self._file.close()
                self._file = None
        super().close()

    def _append(self, line: bytes) -> None:
        file = self._file or self._open()
        size = file.tell()
        if size and size + len(line) > self.file_bytes:
            # A child that user code forked has the same file, and may have rotated it.
            if _is(self.path, file.fileno()):
                rotate(self.path, self.files)
            file.close()
            file = self._open()
        file.write(line)
        file.flush()

    def _open(self) -> BinaryIO:
        self._file = self.path.open("ab")
        return self._file


def log_to(path: Path | None, config: LoggingConfig, *, topology: str = "") -> None:
    """Send all logging of this process to a rotating file, or to stderr.

    Args:
        path: The file; its name without the suffix is the process's id.
        config: Level, format and sizes.
        topology: Its name, for logs as JSON.
    """
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = LogFile(path, file_bytes=config.file_bytes, files=config.files)
    process = path.stem if path is not None else ""
    as_json = config.format == "json"
    handler.setFormatter(JsonLines(topology=topology, process=process) if as_json else logging.Formatter(TEXT))
    logging.basicConfig(level=config.level, handlers=[handler], force=True)


def log_file() -> LogFile | None:
    """Where this process logs to; None if it is no file."""
    return next((h for h in logging.getLogger().handlers if isinstance(h, LogFile)), None)


def rotate(path: Path, files: int) -> None:
    """Rename a file to `.1`, and its `files` predecessors to one number more; the oldest is replaced."""
    for old, new in [(f"{path}.{n}", f"{path}.{n + 1}") for n in range(files - 1, 0, -1)] + [(path, f"{path}.1")]:
        with contextlib.suppress(FileNotFoundError):
            os.replace(old, new)


async def bound_output(file: LogFile) -> None:
    """Rotate the output file beside this process's log file, whenever it is too large, until cancelled."""
    out = file.path.with_suffix(".out")
    while True:
        await asyncio.sleep(OUT_CHECK_S)
        try:
            rotate_output(out, file_bytes=file.file_bytes, files=file.files)
        except OSError as e:
            log.warning("%s cannot be rotated: %s", out, e)


def rotate_output(out: Path, *, file_bytes: int, files: int) -> bool:
    """Give stdout and stderr a new file `out`, if that is theirs and has at least `file_bytes`. Whether it was done."""
    try:
        if out.stat().st_size < file_bytes:
            return False
    except FileNotFoundError:
        return False
    ours = [fd for fd in _FDS if _is(out, fd)]
    if not ours:
        return False
    rotate(out, files)
    new = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        for fd in ours:
            os.dup2(new, fd)
    finally:
        os.close(new)
    return True


def _is(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:  # renamed or removed, or closed by user code
        return False
