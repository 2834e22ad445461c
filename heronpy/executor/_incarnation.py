"""Incarnations of a container: which start of it is the newest, and what an older one does.

A cluster starts a container again on another host when the first one does not answer, and cannot know whether it is
dead or cut off. So each start takes the next number in the state manager, by compare-and-set. The Topology Master and
the Stream Managers refuse what has a lower one, and an executor that sees a higher one in its own record ends.

A number is the previous one plus one, or the time in seconds if that is more: then numbers grow also where the state
manager has lost the record, as far as the clocks of hosts agree.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable

import heronpy
from heronpy.errors import DamagedStateError, HeronError
from heronpy.proto import state_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, StateManager, container_node, container_record, records

GONE_S = 300.0
"""How long a topology must be missing in the state manager before a container ends that shares nothing with its
submitter. A state manager that has lost its data is given them again by the Topology Master, which may be started again
on another host just then. So it is long; what is cut off from a killed topology does no harm meanwhile."""


class ReplacedError(HeronError):
    """This incarnation of the container is not needed any more. No failure: its process exits with 0."""

    exit_code = 0


def take_incarnation(
    state: StateManager, launch: Launch, container: int, now_s: Callable[[], float] = time.time
) -> state_pb2.ContainerRecord:
    """Make this start of a container the newest.

    Returns:
        The record that is in the state manager now. Its `topology_id` is this topology's.

    Raises:
        ReplacedError: the name belongs to another submission by now.
        StateError: the state manager cannot be read or written.
    """
    node = container_node(launch.topology, container)
    # Before, so that the container that has the name by now sees nothing of this one; and again afterwards.
    _check_submission(state, launch)
    record = _record(launch, container)
    while True:
        before = state.get(Kind.CONTAINERS, node)
        previous = container_record(before).incarnation
        started_s = now_s()
        record.incarnation, record.started_s = max(previous + 1, int(started_s)), int(started_s)
        if state.set_if(Kind.CONTAINERS, node, record.SerializeToString(), expected=before):
            break
    try:
        _check_submission(state, launch)
    except ReplacedError:
        remove_record(state, launch, record)
        raise
    return record


def hold_incarnation(
    state: StateManager, launch: Launch, container: int, incarnation: int
) -> state_pb2.ContainerRecord:
    """The record of an incarnation that was taken for this start already.

    Raises:
        ReplacedError: there is a newer one by now, or the name belongs to another submission.
        StateError: the state manager cannot be read.
    """
    _check_submission(state, launch)
    value = state.get(Kind.CONTAINERS, container_node(launch.topology, container))
    found = container_record(value)
    if found.topology_id == launch.topology_id:
        if found.incarnation > incarnation:
            raise ReplacedError(f"incarnation {found.incarnation} on {found.host} replaces this one, {incarnation}")
        if found.incarnation == incarnation:
            return found
    record = _record(launch, container)  # lost: it is written again as soon as the topology is there again
    record.incarnation, record.started_s = incarnation, int(time.time())
    return record


def _record(launch: Launch, container: int) -> state_pb2.ContainerRecord:
    return state_pb2.ContainerRecord(
        topology_id=launch.topology_id,
        container=container,
        host=socket.gethostname(),
        address=launch.advertised_host(),
        version=heronpy.__version__,
        start_id=secrets.token_bytes(8),
    )


def remove_record(state: StateManager, launch: Launch, record: state_pb2.ContainerRecord) -> None:
    """Remove the record of a container of a topology that is gone, unless it is that of a newer incarnation.

    Raises:
        StateError: the state manager cannot be read or written.
    """
    node = container_node(launch.topology, record.container)
    found = container_record(state.get(Kind.CONTAINERS, node))
    if found.incarnation == record.incarnation:
        state.delete(Kind.CONTAINERS, node)


def restore_record(state: StateManager, launch: Launch, record: state_pb2.ContainerRecord) -> None:
    """Write the record again that the state manager has lost, or that a container of an earlier submission has
    replaced; unless another incarnation has written its own, or the topology is gone.

    Raises:
        StateError: the state manager cannot be read or written.
    """
    node = container_node(launch.topology, record.container)
    found = state.get(Kind.CONTAINERS, node)
    theirs = container_record(found).topology_id
    execution = state.get(Kind.EXECUTIONSTATE, launch.topology)
    if state.is_buried(launch.topology_id):
        return
    if theirs != launch.topology_id and execution is not None and not _another(launch, execution):
        state.set_if(Kind.CONTAINERS, node, record.SerializeToString(), expected=found)


class Tenure:
    """Whether an incarnation is still the newest of its container, and its topology there. Pure: no clock, no store."""

    def __init__(self, launch: Launch, record: state_pb2.ContainerRecord, *, shares_files: bool) -> None:
        """Begin with what `take_incarnation` has returned.

        Args:
            launch: Of the topology.
            record: Of this incarnation.
            shares_files: The topology's directory is the submitter's: it says when the topology is gone, and a state
                manager that has lost its data says nothing.
        """
        self.record = record
        self._launch = launch
        self._shares_files = shares_files
        self._end = ""
        self._lost = False
        self._gone_since_s: float | None = None

    @property
    def lost(self) -> bool:
        """Whether the record is gone while the topology is there: it is to be written again."""
        return self._lost and self._gone_since_s is None and not self._end

    def record_changed(self, value: bytes | None) -> None:
        """The node of the container has this value."""
        newest = container_record(value)
        # Of another submission: an earlier one, that is back from the dead. A later one is in the execution state.
        self._lost = newest.topology_id != self.record.topology_id
        if self._lost:
            return
        if newest.incarnation == self.record.incarnation:
            self.record = newest  # others add to it: where its heron-shell listens
        elif newest.incarnation > self.record.incarnation:
            self._end = (
                f"container {self.record.container} was started again on {newest.host or 'another host'}: "
                f"incarnation {newest.incarnation} replaces this one, {self.record.incarnation}"
            )

    def execution_changed(self, value: bytes | None, now_s: float) -> None:
        """The topology's execution state has this value."""
        if value is not None:
            self._gone_since_s = None
            self._end = self._end or _another(self._launch, value)
        elif self._gone_since_s is None:
            self._gone_since_s = now_s

    def tombstone_changed(self, value: bytes | None) -> None:
        """The mark of this submission as killed has this value."""
        if value is not None:
            self._end = self._end or _killed(self._launch)

    def ended(self, now_s: float) -> str:
        """Why the container has to end; empty while it has not to."""
        since_s = self._gone_since_s
        if not self._end and since_s is not None and not self._shares_files and now_s - since_s >= GONE_S:
            self._end = f"topology {self._launch.topology} is gone from the state manager"
        return self._end


def _check_submission(state: StateManager, launch: Launch) -> None:
    if state.is_buried(launch.topology_id):
        raise ReplacedError(_killed(launch))
    if another := _another(launch, state.get(Kind.EXECUTIONSTATE, launch.topology)):
        raise ReplacedError(another)


def _killed(launch: Launch) -> str:
    return f"topology {launch.topology} was killed"


def _another(launch: Launch, execution: bytes | None) -> str:
    """Why a topology is not this one; empty if it is, or if there is none."""
    if execution is None:
        return ""
    try:
        found = records.execution_state(launch.topology, execution)
    except DamagedStateError:
        return ""  # damaged: it says nothing
    if found.topology_id == launch.topology_id:
        return f"topology {launch.topology} is being removed" if found.removed else ""
    return f"topology {launch.topology} is {found.topology_id} now, and this container is of {launch.topology_id}"
