"""What a key-value store of live views is: deltas are merged into it per batch id and key.

A view is divided by key among the tasks that write it, and among batch ids, so that what a batch view replaces can be
left out of a read. Each task writes rows of its own (`writer`): no two processes write one row, and a reader merges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from heronpy.errors import StateError
from heronpy.filesystem import Location
from heronpy.streamlet.monoid import Monoid


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContext:
    """Which view a store is opened for."""

    view: str
    """Name of the view."""
    monoid: Monoid
    """How its values are merged, encoded and read."""
    directory: Location | None
    """The job's directory: embedded stores keep their files in `directory/live/<view>/`, if it is one of this host."""
    failed: Callable[[Any, Any, Exception], None] | None = None
    """`failed(key, delta, error)`: what is stored of a key cannot be merged with a delta, and stays as it is. Without
    it `commit` raises the error."""


def check_monoid_of(view: str, stored: str, monoid: Monoid) -> None:
    """Refuse a view whose rows are accumulators of another monoid.

    Raises:
        StateError: they are.
    """
    if stored != monoid.signature:
        raise StateError(
            f"live view {view} holds values of {stored}, the program has {monoid.signature}: give the view another "
            "name, or remove its rows while the topology does not run"
        )


class StoreWriter(ABC):
    """The rows of one writing task. Called from one thread only."""

    @abstractmethod
    def merge(self, key: Any, delta: Any, batch: int = 0) -> None:
        """Add an accumulator to a key's. It may wait in memory until `commit`.

        Raises:
            TypeError: a key that cannot be stored (see `heronpy.stores.encode_key`).
        """

    @abstractmethod
    def commit(self) -> None:
        """Everything merged is stored on return, all of it or (if the process dies) nothing.

        Raises:
            UnavailableError: the store cannot be reached; nothing is lost, `commit` can be called again, also with
                more that was merged meanwhile.
        """

    def commit_once(self, name: str, number: int) -> None:
        """As `commit`, unless this or a larger number was committed under this name: then what is merged is dropped.

        Raises:
            UnavailableError: the store cannot be reached; it may be committed, and can be repeated as it is.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be written exactly once")

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""


class StoreReader(ABC):
    """A view, read over all of its writers."""

    @abstractmethod
    def get(self, key: Any, after: int | None = None) -> Any:
        """The accumulator of a key over all batches later than `after`; None if it has none.

        Raises:
            UnavailableError: the store cannot be reached.
        """

    @abstractmethod
    def batches(self) -> list[int]:
        """Batch ids that the store has rows of, ascending."""

    @abstractmethod
    def items(self, batch: int) -> Iterator[tuple[Any, Any]]:
        """Every key of a batch with its accumulator, in no order."""

    @abstractmethod
    def replace(self, batch: int, items: Iterable[tuple[Any, Any]]) -> None:
        """Make these the only rows of a batch, atomically."""

    @abstractmethod
    def drop(self, upto: int) -> int:
        """Forget all batches up to and with `upto`; how many rows went."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""


class Store(ABC):
    """A key-value store: a small, picklable description, opened where it is used."""

    needs_directory = False
    """Whether it keeps its files in the job's directory, which must be one of a host then."""

    exactly_once = False
    """Whether its writers have `commit_once`, which it takes to be written effectively once."""

    @abstractmethod
    def writer(self, context: StoreContext, writer_id: str) -> StoreWriter:
        """Open the rows of one writing task; `writer_id` is part of paths and keys.

        Raises:
            HeronError: it cannot be written; one line.
        """

    @abstractmethod
    def reader(self, context: StoreContext) -> StoreReader:
        """Open a view for reading. A view that was never written is empty.

        Raises:
            HeronError: it cannot be read; one line.
        """
