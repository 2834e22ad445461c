"""Files in a store at least once: written on local disk, and uploaded whole at each flush."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from heronpy.connectors._staged_files import Encoder
from heronpy.connectors.spi import SinkContext, SinkWriter
from heronpy.errors import UnavailableError
from heronpy.filesystem import UrlPath, stored_files


class LocalCopy:
    """A file that is written here, to be uploaded."""

    def __init__(self, sink: str, encoder: Callable[[BinaryIO], Encoder]) -> None:
        """Begin with nothing.

        Args:
            sink: its name, for errors.
            encoder: makes one for an empty file, open for writing and reading.
        """
        self._sink = sink
        self._encoder_of = encoder
        self._file: BinaryIO | None = None
        self._encoder: Encoder | None = None
        self._count = 0
        self._broken = ""

    def __len__(self) -> int:
        return self._count

    def add(self, element: Any) -> None:
        """Take an element. Raises ValueError if the format cannot hold it."""
        with self._usable():
            if self._encoder is None:
                self._file = tempfile.TemporaryFile(prefix="heron-sink-")  # noqa: SIM115  # it stays open until `take`
                self._encoder = self._encoder_of(self._file)
            self._encoder.add(element)
        self._count += 1

    def take(self) -> BinaryIO:
        """The file with all that was added; what comes is for another one."""
        with self._usable():
            assert self._file is not None
            assert self._encoder is not None
            self._encoder.finish()
            self._file.flush()
        file, self._file, self._encoder, self._count = self._file, None, None, 0
        return file

    def discard(self) -> None:
        """Forget it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = self._encoder = None
        self._count = 0

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """After an error of the file system it is unknown what is in the file: then nothing more is taken."""
        if self._broken:
            raise UnavailableError(self._broken)
        try:
            yield
        except OSError as e:
            where = tempfile.gettempdir()
            self._broken = f"sink {self._sink} cannot write in {where} what is to be uploaded: {e.strerror or e}"
            raise UnavailableError(self._broken) from e


class StoredPartWriter(SinkWriter):
    """`<url>/part-<task>-<n>-<token><suffix>`, one file for each flush.

    No other process has the token: what is acked is not overwritten, and an upload whose answer was lost is repeated.
    """

    def __init__(
        self, place: UrlPath, suffix: str, encoder: Callable[[BinaryIO], Encoder], context: SinkContext
    ) -> None:
        self._place = place
        self._files = stored_files(place)
        self._task, self._token, self._suffix = context.task_index, os.urandom(6).hex(), suffix
        self._copy = LocalCopy(context.name, encoder)
        self._number = 0
        self._waiting: BinaryIO | None = None
        """A file whose upload has failed."""

    def write(self, element: Any) -> None:
        self._copy.add(element)

    def flush(self) -> None:
        while self._waiting is not None or self._copy:
            if self._waiting is None:
                self._waiting = self._copy.take()
            name = f"part-{self._task}-{self._number}-{self._token}{self._suffix}"
            self._files.upload(self._place / name, self._waiting)
            self._waiting.close()
            self._waiting = None
            self._number += 1

    def close(self) -> None:
        """Let go of files. What was not flushed is gone."""
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None
        self._copy.discard()
