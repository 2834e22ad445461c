"""What of a state stays in memory, and what goes to the file: a task's budget, divided among its states.

What has changed since the last committed checkpoint is in memory, whatever that takes. What has not is there as long
as there is room, those that were changed last; the others go to the file (`_cold.py`), where reads find them.
Sizes are estimates, from some entries of each state; the budget leaves room for their errors, for the holes
between what was freed, and for what checkpoints and reads have under way.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from heronpy.errors import UnavailableError
from heronpy.state._cold import ColdEntries, ColdFile
from heronpy.state._immutable import immutable
from heronpy.state._layers import Clock, Layer, Values
from heronpy.state._owed import Written
from heronpy.state._schema import Schema

log = logging.getLogger(__name__)

FILL: Final = 0.6
"""The part of the budget that entries may take."""
MAPPED_BYTES_MIN: Final = 4 << 20
MAPPED_BYTES_MAX: Final = 32 << 20
"""Of the file: to give back so much takes 3 ms."""
_AT_ONCE = 256
_SAMPLES = 2
_SLOT_BYTES = 110  # of an entry in a dict, about
_TIME_BYTES = 170  # in an ordered one, with its time
_SEEN_BYTES = 200  # of a mutable one besides, with its digest
_OBJECTS_MAX = 200
_NEXT_DIRTY = 1.5


class Memory:
    """What the states of a task may take of memory."""

    def __init__(self, budget_bytes: int, directory: Path) -> None:
        """Nothing is taken.

        Args:
            budget_bytes: For all of them.
            directory: Where the rest goes: one on a disk.

        Raises:
            ConfigError: a package is not installed.
        """
        self._budget_bytes = FILL * budget_bytes
        self.file = ColdFile(directory, min(max(budget_bytes // 8, MAPPED_BYTES_MIN), MAPPED_BYTES_MAX))
        self.spills: list[Spill] = []

    def room(self, spill: Spill) -> float:
        """Bytes that a state may take: its share, and what the others leave of theirs."""
        share = self._budget_bytes / len(self.spills)
        return self._budget_bytes - sum(min(share, other.bytes) for other in self.spills if other is not spill)


class Spill:
    """What one state has in memory and in the file."""

    def __init__(self, memory: Memory, schema: Schema, *, by_time: bool) -> None:
        """Nothing.

        Args:
            memory: The task's.
            schema: Of the state.
            by_time: Whether entries have times.
        """
        self.cold = ColdEntries(memory.file, schema, by_time=by_time)
        self._memory = memory
        self._by_time = by_time
        self._name = schema.name
        self._slot_bytes = _SLOT_BYTES + (_TIME_BYTES if by_time else 0)
        self._entry_bytes = 0.0
        self._keys = 0
        self._last_dirty = 0
        self._warned = False
        memory.spills.append(self)

    @property
    def bytes(self) -> float:
        """In memory, about."""
        return self._keys * self._entry_bytes

    def begun(self, changed: int) -> None:
        """So many entries are of the checkpoint that has begun."""
        self._last_dirty = changed

    def remove(self, keys: Sequence[Any]) -> None:
        """Forget keys that may be in the file, also if it cannot be written."""
        try:
            self.cold.remove(keys)
        except UnavailableError as error:
            self.failed(error)
            self.cold.hide(keys)

    def failed(self, error: UnavailableError) -> None:
        """The file cannot be written: what it should have is in memory meanwhile."""
        if not self._warned:
            log.warning("state %r takes more memory than it may: %s", self._name, error)
        self._warned = True

    def look_at(self, items: Sequence[tuple[Any, Any]]) -> None:
        """Take some entries for what the others are like."""
        for key, value in items[:_SAMPLES]:
            value = value.value if type(value) is Written else value
            size = self._slot_bytes + size_of(key) + size_of(value)
            if self._by_time and not immutable(value):
                size += _SEEN_BYTES
            self._entry_bytes += (size - self._entry_bytes) * (0.05 if self._entry_bytes else 1.0)

    def sunk(self, layer: Layer, base: Values, deadline_s: float, clock: Clock) -> bool:
        """Move a layer into the base, until a time. Whether nothing of it is left."""
        values, deleted = layer
        while deleted:
            keys = list(islice(deleted, _AT_ONCE))
            self.remove(keys)
            for key in keys:
                base.pop(key, None)
                del deleted[key]
            if clock() >= deadline_s:
                return False
        while values:
            items = [values.popitem() for _ in range(min(_AT_ONCE, len(values)))]
            for key, value in items:
                base.pop(key, None)  # what was changed last is the last to go
                base[key] = value
            self.look_at(items)
            if clock() >= deadline_s:
                break
        return not values

    def evicted(
        self,
        base: Values,
        dirty: int,
        stamp: Callable[[Any], int],
        taken: Callable[[Any], None],
        deadline_s: float,
        clock: Clock,
    ) -> bool:
        """Move from the base to the file what there is no room for, until a time. Whether the rest has room.

        Args:
            base: What is committed.
            dirty: How many entries there are beside.
            stamp: When the value of a key was written that is about to leave; 0 if it is not needed any more.
            taken: Called with each key of such a time that has left.
            deadline_s: By the clock.
            clock: In seconds.
        """
        more = max(dirty, int(_NEXT_DIRTY * self._last_dirty))
        limit = max(0, int(self._memory.room(self) / (self._entry_bytes or 1.0)) - more)
        self._keys = dirty + len(base)
        while len(base) > limit:
            keys = list(islice(base, min(_AT_ONCE, len(base) - limit)))
            values = [value.value if type(value) is Written else value for value in map(base.__getitem__, keys)]
            stamps = list(map(stamp, keys))
            try:
                refused = self.cold.put(zip(keys, values, stamps, strict=True))
            except UnavailableError as error:
                self.failed(error)
                return True
            if not self._entry_bytes:
                self.look_at(list(zip(keys, values, strict=True)))
            kept = {key: base[key] for key in refused}
            for key, written_ms in zip(keys, stamps, strict=True):
                del base[key]
                if written_ms and key not in kept:
                    taken(key)
            base.update(kept)
            limit += len(kept)
            self._keys = dirty + len(base)
            if clock() >= deadline_s:
                return len(base) <= limit
        return True


def size_of(value: Any) -> int:
    """Bytes that a value takes, with what is in it; where that is much, what some of it takes, times its number."""
    total, seen, stack = 0, 0, [value]
    while stack:
        each = stack.pop()
        total += sys.getsizeof(each, 64)
        seen += 1
        if seen > _OBJECTS_MAX:
            return total * (seen + len(stack)) // seen
        if isinstance(each, dict):
            stack += each.keys()
            stack += each.values()
        elif isinstance(each, (list, tuple, set, frozenset)):
            stack += each
        elif (attributes := getattr(each, "__dict__", None)) is not None:
            stack.append(attributes)
    return total
