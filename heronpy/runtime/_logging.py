"""What a process logs and prints: two files, `<process>.log` and `<process>.out`, rotated, each of bounded size.

Rotation renames x to x.1, x.1 to x.2 and so on. A log file is rotated before the line that would not fit. What is
printed goes to its file without us, so the process looks at its size once a second and, where it is too large, gives
its own stdout and stderr a new file in one step: nothing is lost, and no print waits. Only what a child of the
user's code goes on printing stays in the file that it was started with.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import sys
from datetime import UTC, datetime
from io import FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.config import LoggingConfig

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

log = logging.getLogger(__name__)

TEXT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
OUT_CHECK_S = 1.0
_FDS = (1, 2)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
    """A log file that is rotated before it gets larger than `file_bytes`; `files` old ones are kept.

    A line is one write, so processes that share a file do not mix theirs. Where nothing can be written, because the
    disk is full, lines are lost; the log says how many as soon as it can, and stderr says it at once.
    """

    def __init__(self, path: Path, *, file_bytes: int, files: int) -> None:
        super().__init__()
        self.path = path
        self.file_bytes = file_bytes
        self.files = files
        self._file: FileIO | None = None
        self._lost = 0
        self._why = ""
        self._torn = False
        """Whether the file ends with a part of a line."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._encoded(record)
        except Exception:
            self.handleError(record)  # as every handler: what cannot be formatted ends nothing
            return
        try:
            if self._lost:
                self._append(self._encoded(self._loss()))
                self._lost = 0
            self._append(line)
        except OSError as e:
            self._lose(e)

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            self._close()
        super().close()

    def _encoded(self, record: logging.LogRecord) -> bytes:
        # Half a surrogate pair has no UTF-8. Its escape is also one of JSON.
        return (self.format(record) + "\n").encode("utf-8", "backslashreplace")

    def _append(self, line: bytes) -> None:
        file = self._file or self._open()
        size = file.tell()
        if size and size + len(line) > self.file_bytes:
            file = self._rotated(file)
        rest = memoryview(b"\n" + line if self._torn else line)
        while rest:
            rest = rest[file.write(rest) or 0 :]
            self._torn = bool(rest)  # a disk that is nearly full takes a part

    def _rotated(self, file: FileIO) -> FileIO:
        # A child that user code forked has the same file. Two that rotate at a time would replace each other's files,
        # so there is a lock, by process; who does not get it writes on, and checks again with the next line.
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return file
        if _is(self.path, file.fileno()):  # else somebody has rotated it
            rotate(self.path, self.files)
        self._close()
        return self._open()

    def _open(self) -> FileIO:
        self._file = FileIO(self.path, "ab+")
        size = self._file.seek(0, os.SEEK_END)
        # A process that died beside a full disk may have left a part of a line.
        self._torn = size > 0 and os.pread(self._file.fileno(), 1, size - 1) != b"\n"
        return self._file

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _lose(self, error: OSError) -> None:
        self._lost += 1
        self._why = error.strerror or str(error)
        if self._lost == 1 and sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # it may be on the same disk, or closed by user code
                print(f"{self.path} cannot be written: {self._why}; lines are lost until it can", file=sys.stderr)

    def _loss(self) -> logging.LogRecord:
        lines = "1 line was" if self._lost == 1 else f"{self._lost} lines were"
        return logging.makeLogRecord(
            {
                "name": __name__,
                "levelno": logging.ERROR,
                "levelname": "ERROR",
                "msg": f"{lines} lost here: {self._why}",
            }
        )


class _Printed(FileIO):
    """Standard output that loses what a full disk does not take: a log does so too, and print() in user code must not
    fail tuples and end processes for it."""

    def write(self, data: ReadableBuffer, /) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                rest = rest[super().write(rest) or 0 :]
        except OSError as e:
            if e.errno not in _FULL:
                raise
        return size


def log_to(path: Path | None, config: LoggingConfig, *, topology: str = "") -> None:
    """Send all logging of this process to a rotating file, or to stderr.

    Args:
        path: The file; its name without the suffix is the process's id.
        config: Level, format and sizes.
        topology: Its name, for logs as JSON.

    Raises:
        OSError: the file cannot be opened; FileNotFoundError also if what its directory was in is gone.
    """
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler()
    else:
        path.parent.mkdir(exist_ok=True)  # but not what it is in: that was removed
        _print_to(path.with_suffix(".out"))
        handler = LogFile(path, file_bytes=config.file_bytes, files=config.files)
    process = path.stem if path is not None else ""
    as_json = config.format == "json"
    handler.setFormatter(JsonLines(topology=topology, process=process) if as_json else logging.Formatter(TEXT))
    logging.basicConfig(level=config.level, handlers=[handler], force=True)


def _print_to(out: Path) -> None:
    """Have a full disk fail no print, if stdout and stderr are this file."""
    for name, fd in zip(("stdout", "stderr"), _FDS, strict=True):
        old = getattr(sys, name)
        if isinstance(old, TextIOWrapper) and _is(out, fd):
            raw = _Printed(fd, "w", closefd=False)
            new = TextIOWrapper(raw, encoding=old.encoding, errors=old.errors, write_through=True)
            setattr(sys, name, new)


def log_file() -> LogFile | None:
    """Where this process logs to; None if it is not a file."""
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
