"""Tuples that are the reason of one rollback after the other: which of them are not to be executed any more.

How often each was is in the record of checkpoints (`Record.poisoned`), so that a tuple that also brings down, or meets
with the death of, a Topology Master does not go on for ever. It is written after the epoch is raised, beside the
restore; a Topology Master that dies before that has counted one rollback too few.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from heronpy.tmaster.checkpoints._events import RollbackRequested

log = logging.getLogger(__name__)

ROLLBACKS = 3
"""So many without a commit in between, and a tuple is set aside."""
_REASON_CHARACTERS = 500
_TUPLES_MAX = 100
"""So many are counted; of more the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Poisoned:
    """A tuple that was the reason of rollbacks."""

    rollbacks: int
    reason: str
    """Of the last one."""


class Poison:
    """Counts rollbacks since the last commit by the tuple that was their reason."""

    def __init__(self) -> None:
        self._counted: tuple[int, dict[int, RollbackRequested]] = (0, {})
        """The epoch, and the requests of it that were counted, by task: they are repeated."""
        self.loaded = False
        """Whether what another Topology Master has found is known."""
        self.found: Mapping[bytes, Poisoned] = MappingProxyType({})
        """What is to be in the record."""

    @property
    def set_aside(self) -> Mapping[bytes, str]:
        """What is not to be executed, and why it has failed. It does not change while an epoch is restored."""
        return {tup: each.reason for tup, each in self.found.items() if each.rollbacks >= ROLLBACKS}

    def load(self, found: Mapping[bytes, Poisoned]) -> None:
        """Go on with what another Topology Master has found. What came before counts besides."""
        epoch, requests = self._counted
        self.found, self._counted, self.loaded = MappingProxyType(dict(found)), (epoch, {}), True
        for event in requests.values():
            self.rolled_back(event)

    def rolled_back(self, event: RollbackRequested) -> None:
        """A task asks for a restore, maybe not for the first time."""
        if self._counted[0] != event.epoch:
            self._counted = event.epoch, {}
        if not event.tuple or event.task in self._counted[1]:
            return
        self._counted[1][event.task] = event
        found = dict(self.found)
        before = found.pop(event.tuple, None)
        rollbacks = 1 if before is None else before.rollbacks + 1
        if rollbacks == ROLLBACKS:
            log.error("a tuple is set aside after %d rollbacks: task %d: %s", ROLLBACKS, event.task, event.reason)
        found[event.tuple] = Poisoned(rollbacks, event.reason[:_REASON_CHARACTERS])
        self.found = MappingProxyType(dict([*found.items()][-_TUPLES_MAX:]))

    def committed(self) -> None:
        """A checkpoint is committed: what was set aside is behind it, or counts anew."""
        self.found = MappingProxyType({})
