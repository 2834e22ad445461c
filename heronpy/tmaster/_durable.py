"""The nodes that the active Topology Master writes again when they are lost or damaged: decisions only.

A state manager may come back empty: ZooKeeper without its data directory, a files root that was removed. Others wrote
most nodes of a topology (submit, the scheduler service) and may be long gone, so the active Topology Master remembers
the newest value of each. A killed topology is not brought back: its processes end before its nodes are removed.
A damaged value is never remembered: the last good one is written over it, while it is still the damaged one. So is a
packing plan older than one that was there: the state manager was restored from a backup, and code that the old plan
names may be removed, and its tasks' ids used by others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from heronpy.errors import HeronError, ReadFailedError, StateError
from heronpy.statemgr import Kind, records
from heronpy.tmaster._store_effects import NodeChanged, NodeWritten, StoreFailed, WriteNode

log = logging.getLogger(__name__)

KINDS = (
    Kind.TOPOLOGIES,
    Kind.PACKINGPLANS,
    Kind.EXECUTIONSTATE,
    Kind.SCHEDULERS,
    Kind.LOGLEVELS,
)
"""What is remembered. The physical plan is the publisher's, the epoch and the ephemeral node are the leadership's."""
RETRY_S = 1.0

_PARSERS: dict[Kind, Callable[[str, bytes], object]] = {
    Kind.TOPOLOGIES: records.definition,
    Kind.PACKINGPLANS: records.packing_plan,
    Kind.EXECUTIONSTATE: records.execution_state,
    Kind.SCHEDULERS: records.scheduler_location,
    Kind.LOGLEVELS: records.log_levels,
}


def damage(kind: Kind, topology: str, value: bytes) -> StateError | None:
    """What is wrong with the value of a node; None: nothing."""
    try:
        _PARSERS[kind](topology, value)
    except StateError as e:
        return e
    return None


def outdated(kind: Kind, topology: str, value: bytes, newest: bytes | None) -> StateError | None:
    """Why a sound value is not to be used beside the newest that is known; None: it may be."""
    if kind is not Kind.PACKINGPLANS or newest is None:
        return None
    found, known = (records.packing_plan(topology, each).revision for each in (value, newest))
    if found >= known:
        return None
    return StateError(
        f"node {kind.value}/{topology} of the state manager has revision {found} of the packing plan, and {known} was "
        "there: is it of an old backup?"
    )


def sorted_out(
    values: Mapping[Kind, bytes | None],
    copy: Mapping[Kind, bytes],
    unreadable: Mapping[Kind, ReadFailedError],
    topology: str,
) -> tuple[dict[Kind, bytes], dict[Kind, bytes]]:
    """What is to be used, and what is damaged or outdated and can be written again.

    Args:
        values: What the state manager has.
        copy: What is kept of it.
        unreadable: What may be kept, and cannot be read now.
        topology: The topology's name.

    Raises:
        StateError: a value is missing, or damaged, and its copy cannot be read now: the next incarnation may read it.
    """
    sound: dict[Kind, bytes] = {}
    damaged: dict[Kind, bytes] = {}
    for kind in KINDS:
        value = values.get(kind)
        why = damage(kind, topology, value) if value is not None else None
        if value is not None and why is None:
            why = outdated(kind, topology, value, copy.get(kind))
        if value is not None and why is None:
            sound[kind] = value
            continue
        if error := unreadable.get(kind):
            missing = why or f"the state manager has no {kind.value} of {topology!r}"
            raise StateError(f"{missing}, and the copy: {error}")
        if value is not None and why is not None:
            if kind not in copy and kind in (Kind.TOPOLOGIES, Kind.PACKINGPLANS):
                raise StateError(f"{why}; there is no copy of it: kill the topology and submit it again")
            log.error("%s; %s", why, "the copy is used" if kind in copy else "there is no copy of it")
            damaged[kind] = value
    return sound, damaged


def of_submission(
    copy: Mapping[Kind, bytes | ReadFailedError], topology: str, topology_id: str
) -> tuple[dict[Kind, bytes], dict[Kind, ReadFailedError]]:
    """What was read of the copy and what could not be, unless it is of an earlier submission in the same directory."""
    read = {kind: value for kind, value in copy.items() if isinstance(value, bytes)}
    for kind in KINDS:
        if kind in read and (why := damage(kind, topology, read[kind])) is not None:
            log.warning("the copy of %s is damaged, too, and not used: %s", kind.value, why)
            del read[kind]
    unread = {kind: error for kind, error in copy.items() if isinstance(error, ReadFailedError)}
    if Kind.TOPOLOGIES in unread:  # then of which submission the others are is unknown, too
        return {}, dict.fromkeys(copy, unread[Kind.TOPOLOGIES])
    defined = read.get(Kind.TOPOLOGIES)
    if defined is None or records.definition(topology, defined).id != topology_id:
        return {}, {}
    return read, unread


class DurableNodes:
    """The newest values of a topology's nodes."""

    def __init__(
        self,
        values: Mapping[Kind, bytes | None],
        copy: Mapping[Kind, bytes],
        damaged: Mapping[Kind, bytes] | None = None,
    ) -> None:
        """Begin with what the state manager holds; what it lacks is taken from the copy, and is missing there.

        Args:
            values: What is there and sound.
            copy: What it was last.
            damaged: What is there, and not to be used.
        """
        found = {kind: value for kind in KINDS if (value := values.get(kind)) is not None}
        self.values: dict[Kind, bytes] = {kind: copy[kind] for kind in KINDS if kind in copy} | found
        there = damaged or {}
        self._missing = {kind: there.get(kind) for kind in self.values if kind not in found}
        """What is to be written again, with what it replaces: a damaged value, or none."""
        self._writing: set[Kind] = set()
        self._due_s = 0.0

    @property
    def due_s(self) -> float | None:
        """When `advance` has something to do next; None: nothing is missing."""
        return self._due_s if self._missing.keys() - self._writing else None

    def advance(self, now_s: float) -> list[WriteNode]:
        """Write again what is missing."""
        if now_s < self._due_s:
            return []
        missing = [kind for kind in KINDS if kind in self._missing.keys() - self._writing]
        self._writing |= set(missing)
        return [WriteNode(kind, self.values[kind], self._missing[kind], kind) for kind in missing]

    def changed(self, event: NodeChanged) -> None:
        """A node has another value, or has vanished."""
        if event.value is not None:
            self.values[event.kind] = event.value
            self._missing.pop(event.kind, None)
        elif event.kind in self.values:
            log.warning("%s has vanished from the state manager: it is written again", event.kind.value)
            self._missing[event.kind] = None

    def damaged(self, kind: Kind, value: bytes, why: HeronError) -> None:
        """A node has a value that is not to be used."""
        if kind in self.values:
            log.error("%s; it is written again", why)
            self._missing[kind] = value
        else:
            log.error("%s; what it was is unknown", why)

    def answered(self, event: NodeWritten | StoreFailed) -> bool:
        """Take the answer to one of our writes. False if it is not one of ours."""
        write = event.write if isinstance(event, NodeWritten) else event.effect
        if not isinstance(write, WriteNode) or write.of is not write.kind or write.kind not in self._writing:
            return False
        self._writing.discard(write.kind)
        if isinstance(event, StoreFailed):
            log.warning("%s cannot be written again yet: %s", write.kind.value, event.reason)
            self._due_s = event.now_s + RETRY_S
        elif write.expected == self._missing.get(write.kind) and (
            write.value == self.values[write.kind] or not event.done
        ):
            self._missing.pop(write.kind, None)  # refused: somebody else was quicker, and a watch will report it
        return True
