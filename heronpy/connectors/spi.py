"""What a source and a sink are: one description with two faces, a stream face and a batch face of the same data.

A source and a sink are descriptions: small, picklable, opened where they are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from heronpy.errors import ConfigError
from heronpy.filesystem import Location


class Record(NamedTuple):
    """One element as a source reads it."""

    value: Any
    """The element."""
    time_ms: int
    """Its time in ms since the epoch. The same each time that the record is read, wherever the source can."""
    id: str
    """Its name among all records of the source: the same each time that it is read, wherever the source can."""
    token: Any = None
    """For `SourceReader.ack`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """Where a source is opened."""

    name: str
    """Stage name."""
    task_index: int
    """Which task of the source this is, from 0."""
    num_tasks: int
    """How many there are: together they must read every record once."""
    config: dict[str, Any]
    """The topology's configuration."""
    directory: Location | None
    """For what must outlive the process, as positions (`directory/positions/<name>/…`); None: nothing can."""
    dead_letter: Callable[[str, Any, str], None]
    """`dead_letter(where, row, reason)`: sets a malformed row aside. `where` names file and row."""
    followed: bool = False
    """Whether what has ended is looked at again: what is still being written can wait until then."""


class SourceReader(ABC):
    """The stream face of a source, open in one task. Called from the task's thread only."""

    @abstractmethod
    def read(self, limit: int) -> Sequence[Record]:
        """The next records: at most `limit`, empty if there are none now. Returns within milliseconds."""

    def ack(self, records: Sequence[Record]) -> None:
        """These are processed, with all that came of them; in no order. The engine replays others by itself."""

    def splits(self) -> Collection[str] | None:
        """The splits that are read in turn, where each has a watermark of its own; None: all records have one."""
        return None

    def split_of(self, record: Record) -> str:
        """Where `splits` has some: that of a record."""
        return ""

    def pause(self, splits: Collection[str]) -> None:
        """Where `splits` has some: give no records of these until the next call, if that can be."""

    @property
    def ended(self) -> bool:
        """Whether there will never be another record."""
        return False

    def close(self) -> None:
        """Let go of files and connections. Not called when the process is killed."""


class Chunk(NamedTuple):
    """Some thousand records, column by column: what a batch job reads at a time."""

    values: list[Any]
    """The elements."""
    times_ms: Sequence[int]
    """Their times."""
    ids: Sequence[str] | None = None
    """Their ids, where a record can be there twice (archives); may be an Arrow array. None: all are different."""
    id_hashes: Any = None
    """With `ids`: a numpy array of int64, equal for equal ids."""


class Split(Protocol):
    """A part of a source's data that one task of a batch job reads. Picklable."""

    @property
    def size_bytes(self) -> int:
        """About how much it reads."""
        ...

    def read(self, dead_letter: Callable[[str, Any, str], None]) -> Iterator[Chunk]:
        """Its records. A malformed row goes to `dead_letter(where, row, reason)`, and the rest is read."""
        ...


class SplitReader(ABC):
    """A split of the stream face, open at a position. Called from the task's thread only."""

    @abstractmethod
    def read(self, limit: int) -> Sequence[Record]:
        """The next records: at most `limit`, empty if there are none now. Returns within milliseconds."""

    @property
    @abstractmethod
    def position(self) -> Any:
        """Where to open it to go on behind what `read` has returned: small, picklable, never changed."""

    @property
    def ended(self) -> bool:
        """Whether there will never be another record, unless the split is opened again."""
        return False

    def committed(self, position: Any) -> None:
        """A checkpoint with a position of this reader is committed: no restore goes back to before it."""

    def close(self) -> None:
        """Let go of files and connections. Not called when the process is killed."""


class StreamSplit(Protocol):
    """A part of a source's data that one task of a topology reads, from any position."""

    def open(self, position: Any, context: SourceContext) -> SplitReader:
        """Open it.

        Args:
            position: one that a reader of it had; None: at its beginning.
            context: the task. Its index, number and directory do not matter.

        Raises:
            HeronError: it cannot be read; one line.
        """
        ...


class Source(ABC):
    """Where elements come from."""

    timed = False
    """Whether the times of its records are event times."""
    rewindable = False
    """Whether `stream_splits` works: the keeper of the positions can go back to them, and reads the same again."""
    interleaved = False
    """Whether the splits of a task are all open, and read in turn; otherwise one after the other has ended."""
    discover_every_s: float | None = None
    """How often to look for new splits, and for more in those that had ended; None: when a task begins."""

    @abstractmethod
    def open(self, context: SourceContext) -> SourceReader:
        """Open the stream face in a task.

        Raises:
            HeronError: it cannot be read; one line.
        """

    def stream_splits(self) -> Mapping[str, StreamSplit]:
        """The splits that there are now, by names that are the same in every run and any number of tasks.

        Raises:
            ConfigError: this source has no positions.
            HeronError: it cannot be read; one line.
        """
        raise ConfigError(f"{self!r} has no positions to go back to")

    def is_gone(self, split: str) -> bool:
        """Whether what a split was is certainly there no more, so that its position may be forgotten. If in doubt, not.

        Asked only about splits that `stream_splits` has not had for a while.
        """
        return False

    def splits(self, target_bytes: int) -> Sequence[Split] | None:
        """The batch face: parts of about `target_bytes`, or None if it has none and must be archived.

        Raises:
            HeronError: it cannot be read; one line.
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """Where a sink is opened."""

    name: str
    """Stage name."""
    task_index: int
    """Which task of the sink this is, from 0."""
    config: dict[str, Any]
    """The topology's configuration."""
    topology_id: str = ""
    """Distinguishes a submission of a topology from others, also of the same name."""
    epoch: int = 0
    """The restore epoch: a transactional writer fences those of smaller ones."""


class SinkWriter(ABC):
    """The stream face of a sink at least once, open in one task. Called from the task's thread only."""

    @abstractmethod
    def write(self, element: Any) -> None:
        """Take an element. It may wait in memory until `flush`.

        Raises:
            ValueError: this sink cannot hold such an element.
        """

    @abstractmethod
    def flush(self) -> None:
        """Everything written is durable and visible on return; elements are acked only then.

        Raises:
            UnavailableError: perhaps not now. What was written is not forgotten: calling it again acks all of it.
        """

    def close(self) -> None:
        """Let go of files and connections. Called after a last `flush`; not when the process is killed."""


class TransactionalSinkWriter(ABC):
    """The stream face of a sink exactly once, open in one task. Called from the task's thread only.

    It takes part in checkpoints, by two-phase commit. What is written between two of them is prepared at the second:
    it can be made visible by then, and is not. What `prepare` returned is saved in the checkpoint. When that has been
    committed, `commit` makes it visible: now, or an hour later by another writer in another process, after a restore.

    Opening a writer fences the writers of smaller epochs, and an older one of the same task and epoch: these may
    prepare what they like, and commit none of it. What they had prepared stays until it is known which of it the
    restored checkpoint has; those who restore commit that by `recover`, and the rest is removed with the first commit
    of something of their own. So `commit` may be called only after every task of the sink has recovered.
    """

    @abstractmethod
    def write(self, element: Any) -> None:
        """Take an element. Invisible until it is committed.

        Raises:
            ValueError: this sink cannot hold such an element. What was written before is as it was.
            FencedError: a newer writer has taken over, as far as this one knows.
            UnavailableError: it cannot be written.
        """

    @abstractmethod
    def prepare(self, checkpoint_id: int) -> Any:
        """End what was written since the last call: from now on it can be committed, whatever becomes of this process.

        Args:
            checkpoint_id: Larger than that of the last call.

        Returns:
            What `commit` needs, picklable; None if nothing was written.

        Raises:
            FencedError: as above, and so is UnavailableError.
            CheckpointError: what was written can never be committed.
        """

    @abstractmethod
    def commit(self, prepared: Any) -> None:
        """Make it visible, all or nothing, durably. Repeated by any writer of the sink, it changes nothing.

        What one task prepared is committed in the order in which it was.

        Raises:
            FencedError: this writer prepared it, and a newer one has taken over. It is not visible.
            UnavailableError: perhaps not now. Repeat it.
            CheckpointError: it is neither there nor was it committed.
        """

    @abstractmethod
    def abort(self, prepared: Any) -> None:
        """Forget what was prepared; it will never be committed. Changes nothing if it was, or if it is repeated.

        Raises:
            UnavailableError: it is still there; invisible all the same.
        """

    def recover(self, prepared: Sequence[Any]) -> None:
        """Called once, before the first `write`: commit what the restored checkpoint has, in this order.

        Raises:
            HeronError: as `commit`.
        """
        for each in prepared:
            self.commit(each)

    def close(self) -> None:
        """Let go of files and connections. What was not prepared is gone. Not called when the process is killed."""


class Sink(ABC):
    """Where elements go."""

    exactly_once = False
    """Whether `open_transactional` works. Otherwise what was written after a checkpoint is written again after a
    rollback to it: at least once."""

    @abstractmethod
    def open(self, context: SinkContext) -> SinkWriter:
        """Open the stream face in a task, at least once.

        Raises:
            HeronError: it cannot be written; one line.
        """

    def open_transactional(self, context: SinkContext) -> TransactionalSinkWriter:
        """Open the stream face in a task, exactly once.

        Raises:
            ConfigError: this sink has no such face.
            FencedError: there is a writer of a larger epoch.
            HeronError: it cannot be written; one line.
        """
        raise ConfigError(f"{self!r} writes at least once: it has no transactions")

    def write_part(self, path: Path, elements: Iterator[Any]) -> Path | None:
        """The batch face: write elements into a new file, `path` plus the format's suffix, and return it.

        With a third parameter `refused: Callable[[Any, Exception], None]` elements that the format cannot hold may be
        given to that; they become dead letters, as in a topology. What is raised ends the run.

        None: this sink has no batch face (`supports_batch` says so before anything runs).
        """
        return None

    supports_batch = False
    """Whether `write_part` works."""
