"""What runs keep for others after them, so that none begins at the beginning of all data.

Of a reduction without a window it is what it has of each batch alone: a view that only runs read, in the same files,
made visible by the same manifest, rolled up into the same tiers. A run that adds a batch reads that batch, and what is
kept of all batches before it: some files for each level of tiers. Of sessions it is those that are open at the end of
each batch, of which only the last is read: no tiers are made of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from heronpy.errors import is_shortage
from heronpy.filesystem import Location
from heronpy.pipeline.blocks import sliced
from heronpy.pipeline.views import read_rows
from heronpy.stores import decode_key
from heronpy.streamlet.monoid import Monoid

BEFORE_MS = -(2**62)
"""The time of what was kept: what of it user code does not take is of no batch that is computed."""
_ROWS = 4096
"""Read together."""


class Partials(Monoid):
    """Values of one key that are still to be reduced: a list of one, or of those that the function did not take.

    Keys and values may be of any type: they are pickled, by the job and into its own directory, as its states are.
    """

    def __init__(self, function: Callable[[Any, Any], Any], *, timed: bool = False, place: str = "") -> None:
        """Of a `reduce_by_key`.

        Args:
            function: the reduction's.
            timed: values come with the time of the latest element in them, (value, time in ms).
            place: what distinguishes it from others, where its name does not.
        """
        self._function, self.timed, self._place = function, timed, place

    @property
    def signature(self) -> str:
        return ", ".join(filter(None, ("reduction", "timed" if self.timed else "", self._place)))

    def lift(self, value: Any) -> list[Any]:
        return [value]

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        if len(a) == len(b) == 1:
            try:
                if self.timed:
                    return [(self._function(a[0][0], b[0][0]), max(a[0][1], b[0][1]))]
                return [self._function(a[0], b[0])]
            except Exception as error:  # a run that meets them sets one of them aside
                if is_shortage(error):
                    raise
        return a + b

    def result(self, acc: list[Any]) -> None:
        return None  # it is not read

    def encode(self, acc: list[Any]) -> bytes:
        return pickled(acc)

    def decode(self, data: bytes) -> Any:
        return pickle.loads(data)


class OpenSessions(Monoid):
    """A key's session that is open at the end of a batch, pickled: a list of one (start in ms, end in ms, value).

    Keys that are not equal to themselves (nan) have one name, and each has a session of its own: these are in one list.
    Of sessions that are joined it is their elements, each in a row of its own: (side, time in ms, value).
    """

    def __init__(self, gap_ms: int, what: str = "sessions", *, place: str = "") -> None:
        """Of a reduction of sessions, or a join.

        Args:
            gap_ms: that ends a session.
            what: is kept of them.
            place: what distinguishes the reduction from others, where its name does not.
        """
        self._gap_ms, self._what, self._place = gap_ms, what, place

    @property
    def signature(self) -> str:
        return ", ".join(filter(None, (f"open {self._what} of {self._gap_ms} ms", self._place)))

    def lift(self, value: bytes) -> bytes:
        return value

    def merge(self, a: bytes, b: bytes) -> bytes:
        return pickled(pickle.loads(a) + pickle.loads(b))

    def result(self, acc: bytes) -> None:
        return None  # it is not read

    def encode(self, acc: bytes) -> bytes:
        return acc

    def decode(self, data: bytes) -> bytes:
        return data


def pickled(value: Any) -> bytes:
    """Anything that travels between tasks."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # classes of a script, lambdas
        return bytes(cloudpickle.dumps(value))


@dataclass(frozen=True)
class PartialsTask:
    """What one task reads of what is kept for a reduction."""

    stage: str
    """The reduction."""
    files: tuple[tuple[int | None, Location], ...]
    """With the batch that each is of; None: it is of batches before all that results are wanted of."""
    batch_length_ms: int
    timed: bool = False
    """See `Partials`."""

    def rows(self) -> Iterator[tuple[int | None, list[tuple[Any, ...]]]]:
        """The batch, and (key, value, time of the latest element), some thousand at a time.

        Without a batch rows are (key, value), and a key may be there several times.

        Raises:
            StateError: a file is damaged or missing.
        """
        for batch, path in self.files:
            for some in sliced(read_rows(path), _ROWS):
                rows = [(pickle.loads(decode_key(key)), value) for key, acc in some for value in pickle.loads(acc)]
                yield batch, self._formed(batch, rows)

    def _formed(self, batch: int | None, rows: list[tuple[Any, Any]]) -> list[tuple[Any, ...]]:
        if batch is None:
            return [(key, value[0]) for key, value in rows] if self.timed else [*rows]
        if self.timed:
            return [(key, *value) for key, value in rows]
        return [(key, value, batch * self.batch_length_ms) for key, value in rows]


def partials_tasks(
    stage: str, files: Sequence[tuple[int | None, Location]], cores: int, batch_length_ms: int, *, timed: bool
) -> list[PartialsTask]:
    """One for each core, if there are so many files."""
    count = min(len(files), cores)
    return [PartialsTask(stage, tuple(files[i::count]), batch_length_ms, timed) for i in range(count)]
