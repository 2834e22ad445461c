"""A generator of the lines of text files."""

from __future__ import annotations

import os
from collections.abc import Iterator

from heronpy.connectors._glob import matching
from heronpy.streamlet.context import Context
from heronpy.streamlet.generator import Generator


class TextFileGenerator(Generator):
    """The lines of all files that match a glob, with their line ends; files are divided among the tasks."""

    def __init__(self, filepattern: str) -> None:
        """Look up the files: those that are there now. Raises OSError if that cannot be determined."""
        super().__init__()
        self._files = sorted(matching(os.path.abspath(filepattern)))
        self._lines: Iterator[str] = iter(())

    def setup(self, context: Context) -> None:
        own = self._files[context.get_partition_index() :: context.get_num_partitions()]
        self.logger.info("%s reads %d of %d files", context.get_stream_name(), len(own), len(self._files))
        self._lines = self._read(own)

    def get(self) -> str | None:
        return next(self._lines, None)

    def _read(self, paths: list[str]) -> Iterator[str]:
        for path in paths:
            with open(path, encoding="utf-8", errors="replace") as f:
                yield from f
