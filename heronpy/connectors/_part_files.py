"""Sinks that write files into a directory: each file appears whole, and none is ever overwritten."""

from __future__ import annotations

import contextlib
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from heronpy.connectors._staged_files import Encoder, StagedWriter, sync_file
from heronpy.connectors._stored_commit import StoredStagedWriter
from heronpy.connectors._stored_parts import StoredPartWriter
from heronpy.connectors.spi import Sink, SinkContext, SinkWriter, TransactionalSinkWriter
from heronpy.errors import ConfigError, UnavailableError
from heronpy.files import sync
from heronpy.filesystem import location


class FileSink(Sink):
    """A directory of files, or a prefix of a store. A format says what is in them."""

    # In a topology each flush makes a file. Its final name is a hard link, which fails if the name is taken: a restart,
    # or a process that was thought dead, cannot overwrite what is acked.

    supports_batch = True
    exactly_once = True
    suffix = ""
    """Of the files' names, with its dot."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Describe the sink.

        Args:
            path: the directory; made when the sink is opened. A relative one begins at the present directory. Or a URL,
                `s3://bucket/prefix?endpoint=…&region=…` or `hdfs://host:port/path`.
        """
        self._path = location("the sink's directory", path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"

    @abstractmethod
    def encoder(self, f: BinaryIO) -> Encoder:
        """An encoder into an empty file, open for writing and reading."""

    def open(self, context: SinkContext) -> SinkWriter:
        if isinstance(self._path, Path):
            return _PartWriter(self, self._path, context)
        return StoredPartWriter(self._path, self.suffix, self.encoder, context)

    def open_transactional(self, context: SinkContext) -> TransactionalSinkWriter:
        if isinstance(self._path, Path):
            return StagedWriter(self._path, self.suffix, self.encoder, context)
        return StoredStagedWriter(self._path, self.suffix, self.encoder, context)

    def write_part(
        self, path: Path, elements: Iterator[Any], refused: Callable[[Any, Exception], None] | None = None
    ) -> Path:
        """Write all elements into one file, in bounded memory. It appears whole, in place of an earlier one.

        Args:
            path: of the file, without its suffix.
            elements: what is in it.
            refused: called for each element that the format cannot hold, which is left out.

        Raises:
            ValueError: an element that the format cannot hold, without `refused`; named.
            HeronError: the file cannot be written.
        """
        final = path.with_name(path.name + self.suffix)
        temporary = path.with_name(f".{final.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w+b") as f:
                encoder = self.encoder(f)
                for element in elements:
                    try:
                        encoder.add(element)
                    except ValueError as e:
                        if refused is None:
                            raise
                        refused(element, e)
                encoder.finish()
                sync_file(f)
            temporary.replace(final)
            sync(path.parent)
        except OSError as e:
            raise UnavailableError(f"cannot write {final}: {e.strerror or e}") from e
        finally:
            with contextlib.suppress(OSError):  # of no importance beside the error that left it there
                temporary.unlink(missing_ok=True)
        return final


class _PartWriter(SinkWriter):
    """`<path>/part-<task>-<n><suffix>`, one file for each flush."""

    def __init__(self, sink: FileSink, directory: Path, context: SinkContext) -> None:
        self._sink = sink
        self._directory = directory
        self._task = context.task_index
        self._unfinished = f".part-{context.name}-{context.task_index}-"
        self._temporary = directory / f"{self._unfinished}{os.getpid()}.tmp"
        self._file: BinaryIO | None = None
        self._encoder: Encoder | None = None
        self._count = 0
        self._broken = ""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._next = self._following()
            self._clear()
        except OSError as e:
            raise ConfigError(f"sink {context.name} cannot write to {directory}: {e.strerror or e}") from e

    def _following(self) -> int:
        name = re.compile(rf"part-{self._task}-(\d+){re.escape(self._sink.suffix)}")
        numbers = (int(found[1]) for found in map(name.fullmatch, os.listdir(self._directory)) if found)
        return max(numbers, default=-1) + 1

    def _clear(self) -> None:
        """Remove what a killed process of this task left unfinished: it was never acked."""
        for entry in os.listdir(self._directory):
            if entry.startswith(self._unfinished):
                (self._directory / entry).unlink(missing_ok=True)

    def write(self, element: Any) -> None:
        with self._usable():
            if self._encoder is None:
                self._file = self._temporary.open("w+b")
                self._encoder = self._sink.encoder(self._file)
            self._encoder.add(element)
        self._count += 1

    def flush(self) -> None:
        with self._usable():
            if not self._count:
                return
            assert self._file is not None
            assert self._encoder is not None
            self._encoder.finish()
            sync_file(self._file)
            self._publish()
            self._discard()

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """After an error of the file system it is unknown what is in the file: then nothing more is taken or acked."""
        if self._broken:
            raise UnavailableError(self._broken)
        try:
            yield
        except OSError as e:
            self._broken = f"cannot write {self._temporary}: {e.strerror or e}"
            raise UnavailableError(self._broken) from e

    def _publish(self) -> None:
        while True:
            final = self._directory / f"part-{self._task}-{self._next}{self._sink.suffix}"
            self._next += 1
            try:
                os.link(self._temporary, final)
            except FileExistsError:
                continue  # of another process with this task's number
            sync(self._directory)
            return

    def _discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._temporary.unlink(missing_ok=True)
        self._file = self._encoder = None
        self._count = 0

    def close(self) -> None:
        """Let go of the file. What was not flushed is gone."""
        with contextlib.suppress(OSError):  # a full disk, which `flush` has reported
            self._discard()
