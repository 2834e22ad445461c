"""Tuples that are the reason of one rollback after the other: which of them are not to be executed any more."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from heronpy.tmaster.checkpoints._events import RollbackRequested

log = logging.getLogger(__name__)

ROLLBACKS = 3
"""So many without a commit in between, and a tuple is set aside."""
_REASON_CHARACTERS = 500


class Poison:
    """Counts rollbacks by the tuple that was their reason. A new Topology Master begins to count anew."""

    def __init__(self) -> None:
        self._rollbacks: Counter[bytes] = Counter()
        self._counted: tuple[int, set[int]] = (0, set())
        """The epoch, and the tasks of it whose request was counted: they are repeated."""
        self.set_aside: Mapping[bytes, str] = MappingProxyType({})
        """What is not to be executed, and why it has failed. It does not change while an epoch is restored."""

    def rolled_back(self, event: RollbackRequested) -> None:
        """A task asks for a restore, maybe not for the first time."""
        if self._counted[0] != event.epoch:
            self._counted = event.epoch, set()
        if not event.tuple or event.task in self._counted[1]:
            return
        self._counted[1].add(event.task)
        self._rollbacks[event.tuple] += 1
        if self._rollbacks[event.tuple] >= ROLLBACKS and event.tuple not in self.set_aside:
            log.error("a tuple is set aside after %d rollbacks: task %d: %s", ROLLBACKS, event.task, event.reason)
            self.set_aside = MappingProxyType({**self.set_aside, event.tuple: event.reason[:_REASON_CHARACTERS]})

    def committed(self) -> None:
        """A checkpoint is committed: what was set aside is behind it, or counts anew."""
        self._rollbacks.clear()
        self.set_aside = MappingProxyType({})
