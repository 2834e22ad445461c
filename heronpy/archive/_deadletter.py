"""Rows that could not be read, stored or computed are set aside here, each with the reason."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from heronpy.errors import ConfigError, HeronError
from heronpy.filesystem import Location, files_of, location

FOLDER = "dead-letter"
"""In a job's directory."""
STAGED = (".", "~")
"""How the names of files begin that do not count yet: in a directory, in a store."""
_ROW_CHARS = 64 * 1024
_STORED_BYTES = 256 * 1024
"""Of a file in a store, where nothing can be appended: it is written again with each row."""
_STAGED_BYTES = 8 * 1024 * 1024
"""Of a staged one, which is in memory until it is closed."""
_ORIGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class DeadLetters:
    """Sets rows aside as JSON lines {at, where, reason, row} in `<directory>/dead-letter/<origin>/`.

    A small, picklable description: each process that uses it opens a file of its own, at the first row. A line is with
    the operating system when the call returns, so it outlives a killed process. Can be called from several threads.
    """

    def __init__(
        self,
        directory: Location,
        origin: str,
        *,
        file_bytes: int = 64 * 1024 * 1024,
        files_per_process: int = 4,
        staged: str = "",
    ) -> None:
        """Describe a place; nothing is created yet.

        Args:
            directory: the job's.
            origin: who sets aside, as a stage's name; part of the path.
            file_bytes: a file that is larger is followed by the next.
            files_per_process: rows beyond these are counted only, in `<name>.left-out`.
            staged: how the files' names begin. They count for nothing, and have a dot before that (a tilde in a
                store), until `publish_letters`. In a store they are not durable before `close`.

        Raises:
            ConfigError: `origin` cannot be part of a path.
        """
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(f"dead letters: {origin!r} cannot name a folder: use letters, digits, '_', '-' and '.'")
        self.directory = location("the job's directory", directory)
        self.origin = origin
        self.count = 0
        """How many rows and files this object has set aside, in this process."""
        self.files: list[Location] = []
        """Those that it has created, in this process."""
        self._staged = staged
        self._file_bytes = file_bytes
        self._files_per_process = files_per_process
        self._stored = not isinstance(self.directory, Path)
        self._start()

    @property
    def path(self) -> Location:
        """The folder with this origin's files."""
        return self.directory / FOLDER / self.origin

    def __call__(self, where: str, row: Any, reason: str) -> None:
        """Set a row aside.

        Args:
            where: file and row, or whatever else names its place.
            row: written as JSON if it can be, else as its `repr`; at most 64 KB of it.
            reason: one line.

        Raises:
            HeronError: it cannot be written.
        """
        line = json.dumps({"at": round(time.time(), 3), "where": where, "reason": reason, "row": _row(row)})
        with self._lock:
            if self._pid != os.getpid():  # the other side of a fork, which must not write into the parent's file
                self._start(keep_lock=True)
            self.count += 1
            try:
                self._write(line.encode() + b"\n")
            except OSError as error:
                raise HeronError(f"cannot write dead letters in {self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file of this process, if there is one. The next row opens another."""
        with self._lock:
            if self._out is not None and self._pid == os.getpid():
                self._out.close()
            self._start(keep_lock=True)

    def __enter__(self) -> DeadLetters:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _of, (self.directory, self.origin, self._file_bytes, self._files_per_process, self._staged)

    def __repr__(self) -> str:
        return f"DeadLetters({str(self.directory)!r}, {self.origin!r})"

    def _start(self, *, keep_lock: bool = False) -> None:
        if not keep_lock:
            self._lock = threading.Lock()
        self._pid = os.getpid()
        self._out: _File | _StoredFile | None = None
        self._bytes = 0
        self._files = 0
        self._left_out = 0
        before = f"{STAGED[self._stored]}{self._staged}" if self._staged else f"{socket.gethostname()}-{self._pid}"
        self._stem = f"{before}-{secrets.token_hex(4)}"

    def _write(self, line: bytes) -> None:
        file_bytes, files = self._file_bytes, self._files_per_process
        if self._stored:
            most = _STAGED_BYTES if self._staged else _STORED_BYTES
            file_bytes, files = min(file_bytes, most), files * max(1, file_bytes // most)
        if self._out is None or self._bytes + len(line) > file_bytes:
            if self._files >= files:
                self._leave_out()
                return
            self._next_file()
        assert self._out is not None
        self._bytes += len(line)
        self._out.write(line)

    def _next_file(self) -> None:
        if self._out is not None:
            self._out.close()
            self._out = None
        suffix = f"-{self._files}" if self._files else ""
        path = self.path / f"{self._stem}{suffix}.jsonl"
        self._out = _File(path) if isinstance(path, Path) else _StoredFile(path, each=not self._staged)
        self.files.append(path)
        self._files += 1
        self._bytes = 0

    def _leave_out(self) -> None:
        self._left_out += 1
        path = self.path / f"{self._stem}.left-out"
        if self._left_out == 1:
            self.files.append(path)
        if isinstance(path, Path):
            path.write_text(str(self._left_out), encoding="ascii")
        else:
            files_of(path).write(path, str(self._left_out).encode("ascii"))


class _File:
    """Lines appended to a file: they are with the operating system at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o644)

    def write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._fd, line) :]

    def close(self) -> None:
        os.close(self._fd)


class _StoredFile:
    """Lines of a file in a store, which is written as a whole: with each line, or when it is closed."""

    def __init__(self, path: Location, *, each: bool) -> None:
        self._path, self._each = path, each
        self._lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        if self._each:
            self._store()

    def close(self) -> None:
        if not self._each:
            self._store()

    def _store(self) -> None:
        files_of(self._path).write(self._path, b"".join(self._lines))


def _of(directory: Location, origin: str, file_bytes: int, files_per_process: int, staged: str) -> DeadLetters:
    return DeadLetters(directory, origin, file_bytes=file_bytes, files_per_process=files_per_process, staged=staged)


def publish_letters(files: Iterable[Location]) -> None:
    """Have staged dead letters count.

    Raises:
        OSError, HeronError: they cannot be renamed; some may count.
    """
    for path in files:
        files_of(path).move(path, path.with_name(path.name[1:]))


def dead_letter_counts(directory: Location, chosen: Callable[[Location], bool] = lambda _: True) -> dict[str, int]:
    """How many rows and files each origin has set aside in a job's directory, also those that were only counted.

    Args:
        directory: the job's.
        chosen: which files count.
    """
    counts: dict[str, int] = {}
    for name, files in sorted(files_of(directory).folders(directory / FOLDER)):
        with contextlib.suppress(FileNotFoundError):  # someone tidies up meanwhile
            counted = (file.path for file in files if file.path.name[0] not in STAGED and chosen(file.path))
            counts[name] = sum(map(_lines, counted))
    return counts


def _lines(path: Location) -> int:
    files = files_of(path)
    if path.suffix == ".left-out":
        return int(files.read(path) or 0)
    if path.suffix != ".jsonl":
        return 0
    if not isinstance(path, Path):
        return files.read(path).count(b"\n")
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _row(row: Any) -> Any:
    """A row as what `json` writes, bounded."""
    if isinstance(row, str):
        return row[:_ROW_CHARS]
    if not isinstance(row, bytes):
        with contextlib.suppress(BaseException):  # also what methods of the user's raise
            text = json.dumps(row, allow_nan=False)
            return row if len(text) <= _ROW_CHARS else text[:_ROW_CHARS]
    else:
        row = row[:_ROW_CHARS]
    try:
        return repr(row)[:_ROW_CHARS]
    except BaseException as error:  # a user's __repr__: what it cannot say must not lose the line
        return f"<{type(row).__name__} without repr: {type(error).__name__}>"
