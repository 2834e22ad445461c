"""What the state manager knows of a topology's checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from google.protobuf.message import DecodeError

from heronpy.errors import StateError
from heronpy.proto import state_pb2
from heronpy.tmaster.checkpoints._events import INITIAL
from heronpy.tmaster.checkpoints._poison import Poisoned

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Undivided:
    """State of a component that only the number of tasks can restore that had it."""

    tasks: int
    state: str
    """Which, in words."""


@dataclass(frozen=True, slots=True)
class Record:
    """The value of the node `statefulcheckpoints`."""

    topology_id: str
    last_id: int = 0
    """The newest that was begun."""
    in_progress: int = 0
    """Begun and not committed; 0: none."""
    committed: tuple[int, ...] = ()
    """Those that are kept, oldest first."""
    settled: int = INITIAL
    """The newest committed one that is known to have no logs: another number of tasks can restore it."""
    poisoned: Mapping[bytes, Poisoned] = field(default_factory=dict)
    """Tuples that were the reason of rollbacks since the last commit."""
    undivided: Mapping[str, Undivided] = field(default_factory=dict)
    """By component, in what was committed last. After a fallback that is a newer one than what is restored."""

    @property
    def newest(self) -> int:
        """What a restore takes."""
        return self.committed[-1] if self.committed else INITIAL

    def begun(self, checkpoint: int) -> Record:
        """With a checkpoint under way."""
        assert checkpoint > self.last_id, "ids of checkpoints only grow"
        return replace(self, last_id=checkpoint, in_progress=checkpoint)

    def with_commit(
        self,
        checkpoint: int,
        retained: int,
        *,
        unaligned: bool = False,
        undivided: Mapping[str, Undivided] | None = None,
    ) -> Record:
        """With a checkpoint committed, and the newest `retained` kept."""
        assert checkpoint == self.in_progress, "only what is under way is committed"
        committed = (*self.committed, checkpoint)[-retained:]
        settled = self.settled if unaligned else checkpoint
        return replace(
            self, in_progress=0, committed=committed, settled=settled, poisoned={}, undivided=undivided or {}
        )

    def without_newer(self, checkpoint: int) -> Record:
        """With this checkpoint as the newest one; 0: with none."""
        committed = tuple(id for id in self.committed if id <= checkpoint)
        settled = self.settled if self.settled <= checkpoint else INITIAL
        return replace(self, in_progress=0, committed=committed, settled=settled)

    def to_proto(self) -> state_pb2.Checkpoints:
        return state_pb2.Checkpoints(
            topology_id=self.topology_id,
            last_id=self.last_id,
            in_progress=self.in_progress,
            committed=self.committed,
            settled=self.settled,
            poisoned=[
                state_pb2.PoisonedTuple(tuple=tup, rollbacks=each.rollbacks, reason=each.reason)
                for tup, each in self.poisoned.items()
            ],
            undivided={
                component: state_pb2.UndividedState(tasks=each.tasks, state=each.state)
                for component, each in self.undivided.items()
            },
        )

    @classmethod
    def from_proto(cls, p: state_pb2.Checkpoints) -> Record:
        poisoned = {each.tuple: Poisoned(each.rollbacks, each.reason) for each in p.poisoned}
        undivided = {component: Undivided(each.tasks, each.state) for component, each in p.undivided.items()}
        return cls(p.topology_id, p.last_id, p.in_progress, tuple(p.committed), p.settled, poisoned, undivided)


def is_newer(one: bytes, other: bytes) -> bool:
    """Whether a record knows of more than another of the same submission, which is as it was before, or damaged."""
    first, second = (_parsed(value) for value in (one, other))
    if first is None or second is None:
        return first is not None
    newer = (first.last_id, first.newest) > (second.last_id, second.newest)
    return first.topology_id == second.topology_id and newer


def record_of(value: bytes | None, known: Record) -> Record:
    """What the state manager holds. It knows less than we do only if it has lost its data.

    Raises:
        StateError: it is damaged, and we know nothing: to begin without the committed state would be a silent loss.
    """
    try:
        found = Record.from_proto(state_pb2.Checkpoints.FromString(value or b""))
    except DecodeError as e:
        if not known.last_id:
            raise StateError(f"the record of checkpoints is damaged, so what to restore is not known: {e}") from e
        log.error("the record of checkpoints is damaged, and is written again: %s", e)
        return known
    if found.topology_id != known.topology_id or found.last_id < known.last_id:
        return known  # of an earlier topology of the same name, or lost
    return found


def _parsed(value: bytes) -> Record | None:
    try:
        return Record.from_proto(state_pb2.Checkpoints.FromString(value))
    except DecodeError:
        return None
