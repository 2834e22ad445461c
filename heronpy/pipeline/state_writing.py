"""Writing state from outside of a topology: each part as a task writes it, which has these keys and has just begun."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from heronpy.checkpoints import CheckpointStorage, Kind, ObjectRef
from heronpy.errors import UsageError
from heronpy.hashing import index_of_group, key_groups
from heronpy.state import Place, SplitState, TaskStates

CHECKPOINT: Final = 1
"""The id of what is written: the first checkpoint of no task."""
_FOR_EVER_S = 1e12

StateRow = tuple[int, Any, Any, int]
"""Position of the state, key, value, and when it was written (ms since 1970; 0: now, as far as that matters)."""


@dataclass(frozen=True, slots=True)
class StateSpec:
    """How a component declares a state."""

    name: str
    kind: Kind
    codec: str
    version: int
    timed: bool
    """Whether rows say when they were written."""


@dataclass(slots=True)
class _Clock:
    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms


@dataclass(slots=True)
class _Part:
    """The states of one task, while they are filled."""

    place: Place
    specs: Sequence[StateSpec]
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.specs)

    def filled(self, rows: Iterable[StateRow]) -> TaskStates:
        clock = _Clock()
        states = TaskStates(self.place, clock_ms=clock)
        declared = [_declare(states, spec) for spec in self.specs]
        timed: list[StateRow] = []
        for row in rows:
            if self.specs[row[0]].timed:
                timed.append(row)
            else:
                self._put(declared, row)
        timed.sort(key=lambda row: row[3])  # the clock of a state does not go back
        for row in timed:
            clock.now_ms = row[3]
            self._put(declared, row)
        return states

    def _put(self, declared: Sequence[Any], row: StateRow) -> None:
        position, key, value, _ = row
        state = declared[position]
        splits = isinstance(state, SplitState)
        try:
            known = key in (state.entries if splits else state)
        except TypeError as e:
            raise self._refused(position, key, f"cannot be a key: {e}") from e
        if known:
            raise self._refused(position, key, "is there twice")
        if splits and value is None:
            state.finish(key)
        else:
            state[key] = value
        self.counts[position] += 1

    def _refused(self, position: int, key: Any, why: str) -> UsageError:
        name = self.specs[position].name
        return UsageError(f"component {self.place.component!r}, state {name!r}: key {str(key)[:80]!r} {why}")


def write_part(
    storage: CheckpointStorage, place: Place, specs: Sequence[StateSpec], rows: Iterable[StateRow], epoch: int
) -> tuple[ObjectRef, list[int]]:
    """Write what task `place.index` begins with. It is in memory as a task has it.

    Args:
        storage: Where to.
        place: Of the task.
        specs: The states of its component.
        rows: All entries of its keys.
        epoch: Another one for each attempt, so that none overwrites what another has written.

    Returns:
        How a manifest names it, and how many entries each state has.

    Raises:
        UsageError: a key is there twice, or is another task's.
        CheckpointError: a value cannot be saved; names component, state and key.
        StateError, UnavailableError: the storage cannot be written.
    """
    part = _Part(place, specs)
    states = part.filled(rows)
    states.begin(CHECKPOINT, epoch)
    refs: list[ObjectRef] = []
    storage.put(states.object_name, _pieces(states, refs))
    return refs[0], part.counts


def state_row(position: int, row: Sequence[Any]) -> StateRow:
    """A row of a table, or a pair of any objects, without what only Spark has.

    Args:
        position: Of the state.
        row: Key, value and, if the state is timed, when it was written.
    """
    from pyspark.sql import Row

    key, value, *written = row
    return position, _plain_key(key), _plain(value, isinstance(row, Row)), int(written[0] or 0) if written else 0


def _plain(value: Any, of_row: bool) -> Any:
    """Structs as tuples, and what is binary in a row as bytes: Spark may give it as bytearrays, others do not."""
    from pyspark.sql import Row

    if isinstance(value, Row):
        return tuple(_plain(one, True) for one in value)
    if type(value) is list:
        return [_plain(one, of_row) for one in value]
    if type(value) is dict:
        return {_plain_key(key): _plain(one, of_row) for key, one in value.items()}
    return bytes(value) if of_row and type(value) is bytearray else value


def _plain_key(key: Any) -> Any:
    from pyspark.sql import Row

    if isinstance(key, (Row, list)):
        return tuple(map(_plain_key, key))
    return bytes(key) if type(key) is bytearray else key


def by_task(rows: Iterable[StateRow], tasks: int, groups: int) -> Iterator[tuple[int, StateRow]]:
    """Rows with the task that each belongs to, by key group. Use it on a few thousand at a time: hashes are vectors.

    Raises:
        TupleError: a key's type has no stable hash.
    """
    some = list(rows)
    for group, row in zip(key_groups([row[1] for row in some], groups), some, strict=True):
        yield index_of_group(group, tasks, groups), row


def _declare(states: TaskStates, spec: StateSpec) -> Any:
    if spec.kind == Kind.SPLIT:
        return states.split_state(spec.name, codec=spec.codec, version=spec.version)
    ttl_s = _FOR_EVER_S if spec.timed else None
    return states.keyed_state(spec.name, codec=spec.codec, version=spec.version, ttl_s=ttl_s)


def _pieces(states: TaskStates, refs: list[ObjectRef]) -> Iterator[bytes]:
    while not refs:
        chunks, ref = states.write()
        yield from chunks
        if ref is not None:
            refs.append(ref)
