"""What does not fit in memory: blocks of rows in a file, which is the one way in which batch jobs and reads spill.

The file has no name, so nothing of it is left, however the process ends. What a block is, `blocks` says: on disk as
between tasks. Rows that need to be brought together by key are an `Overflow`; those that are sorted, or only wait
for their turn, are runs of a `Spill`.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView
from types import TracebackType
from typing import IO, Any, Generic, Protocol, Self, TypeVar

from heronpy.hashing import mix, stable_hash
from heronpy.pipeline.blocks import BLOCK_ROWS, Packer, sliced, unpacked
from heronpy.pipeline.memory import Memory

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
PARTS = 32
_DEPTH_MAX = 3
"""After 32^3 parts what is together is of one key, and dividing it is of no use: a reducer may have a `spill`."""
_DIVIDED = 8192
"""Rows that are divided among parts together."""
_Run = TypeVar("_Run", bound=Hashable)


def local_directory(task: int) -> str | None:
    """Where a task of Spark's spills: a disk that the host has for that, each task in turn; None: there is none.

    Its executor has said so to the Python worker. Where temporary files are there may be little space, or memory alone.
    """
    found = [path for path in os.environ.get(_LOCAL_DIRS, "").split(",") if os.path.isdir(path)]
    return found[task % len(found)] if found else None


class Spill(Generic[_Run]):
    """Runs of rows on disk, each read in the order in which it was written. A context manager.

    In memory is only where each block is: about 100 bytes for up to 128 KB.
    """

    def __init__(self, directory: str | None) -> None:
        """Nothing is written, and no file open.

        Args:
            directory: where the file will be; None: where temporary files are.
        """
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._end = 0
        self._places: dict[_Run, list[tuple[int, int]]] = {}
        self._packer = Packer()

    @property
    def runs(self) -> KeysView[_Run]:
        """Those in which there is something."""
        return self._places.keys()

    def write(self, run: _Run, head: Any, rows: Iterable[Any]) -> None:
        """Add rows to a run.

        Raises:
            OSError: the disk is full, or fails; the directory is its file name.
        """
        for some in sliced(rows, BLOCK_ROWS):
            for block in self._packer.pack(head, some):
                self.write_block(run, block)

    def write_block(self, run: _Run, block: bytes) -> None:
        """Add a block to a run.

        Raises:
            OSError: as `write`. The run is as before.
        """
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115  # closed by `close`
            written = 0
            while written < len(block):
                written += os.pwrite(self._fileno(), memoryview(block)[written:], self._end + written)
        except OSError as e:
            raise OSError(e.errno, e.strerror, self._directory or tempfile.gettempdir()) from e
        self._places.setdefault(run, []).append((self._end, len(block)))
        self._end += len(block)

    def blocks(self, run: _Run) -> Iterator[bytes]:
        """What was written to a run.

        Raises:
            OSError: the disk fails.
        """
        for offset, length in self._places.get(run, ()):
            block = os.pread(self._fileno(), length, offset)
            while len(block) < length:
                piece = os.pread(self._fileno(), length - len(block), offset + len(block))
                if not piece:
                    raise OSError(errno.EIO, "a block is not on the disk any more", self._directory)
                block += piece
            yield block

    def rows(self, run: _Run) -> Iterator[Any]:
        """The rows of a run; those of one block are in memory.

        Raises:
            OSError: the disk fails.
        """
        for block in self.blocks(run):
            yield from unpacked(block)[1]

    def close(self) -> None:
        """Free the space."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _fileno(self) -> int:
        assert self._file is not None, "there is a block"
        return self._file.fileno()


class Reducer(Protocol):
    """Where rows of one key meet, which is the first value of each row."""

    def add(self, head: Any, rows: list[Any], /) -> None:
        """Take the rows of a block."""
        ...

    def dump(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        """Everything that was added, as heads and rows. Nothing else is called afterwards."""
        ...

    def results(self) -> Iterator[Any]:
        """What comes of it, when all has been added."""
        ...


class Overflow:
    """A reducer of more keys than fit in memory. A context manager.

    What it has is divided by a hash of the key among runs whenever memory is full, and each run is reduced by itself
    in the end (a Grace hash join): memory is bounded by the largest run. One that is still too large is divided again,
    by other bits of the hash. What is of one key at last is left to the reducer: it is one value, or it has a `spill`.
    """

    def __init__(self, new: Callable[[], Reducer], memory: Memory, directory: str | None, depth: int = 0) -> None:
        """Nothing is added.

        Args:
            new: makes a reducer.
            memory: of the process.
            directory: where the file is; None: where temporary files are.
            depth: how often what it takes has been divided.
        """
        self._new, self._memory, self._directory, self._depth = new, memory, directory, depth
        self._reducer = new()
        self._spill: Spill[int] = Spill(directory)

    def take(self, block: bytes) -> None:
        """Take a block.

        Raises:
            OSError: the disk is full.
        """
        self.add(*unpacked(block))

    def add(self, head: Any, rows: list[Any]) -> None:
        """Take some thousand rows, at most.

        Raises:
            OSError: the disk is full.
        """
        self._reducer.add(head, rows)
        if self._depth < _DEPTH_MAX:
            if self._memory.is_full():
                self._divide()
        elif (spill := getattr(self._reducer, "spill", None)) is not None and self._memory.is_full():
            spill()
            self._memory.emptied()

    def results(self) -> Iterator[Any]:
        """What comes of everything. What a reducer still has to write it writes when its run is done.

        Raises:
            OSError: the disk is full, or fails.
        """
        if not self._spill.runs:
            yield from _results(self._reducer)
            return
        self._divide()
        for run in self._spill.runs:
            with Overflow(self._new, self._memory, self._directory, self._depth + 1) as inner:
                for block in self._spill.blocks(run):
                    inner.take(block)
                yield from inner.results()
        self.close()

    def close(self) -> None:
        """Free the space on disk."""
        self._spill.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _divide(self) -> None:
        for head, rows in self._reducer.dump():
            for some in sliced(rows, _DIVIDED):
                parts: dict[int, list[Any]] = {}
                for row in some:
                    parts.setdefault(self._part(row[0]), []).append(row)
                for part, few in parts.items():
                    self._spill.write(part, head, few)
        self._reducer = self._new()
        self._memory.emptied()

    def _part(self, key: Any) -> int:
        # Other bits than those that brought the key here, and at each depth others again.
        return (mix(stable_hash(key)) >> (16 * self._depth)) % PARTS


def _results(reducer: Any) -> Iterator[Any]:
    yield from reducer.results()
    if hasattr(reducer, "finish"):
        reducer.finish()
