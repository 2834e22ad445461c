"""The interface of every state manager, and what they share: names and locks."""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import random
import socket
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from google.protobuf.message import DecodeError

from heronpy.errors import AlreadyExistsError, StateError, UnavailableError, UsageError
from heronpy.proto import state_pb2
from heronpy.statemgr._watch import Watch

log = logging.getLogger(__name__)

NAME_BYTES_MAX = 180
LOCK_BYTES_MAX = 60
CONTAINER_BYTES_MAX = 20
ID_BYTES_MAX = 40
"""What a topology's id has more than its name."""
TOMBSTONE_S = 7 * 24 * 3600.0
"""How long a mark of a killed topology is kept: for longer, no container is cut off and comes back."""
_TOMBSTONES_LOOKED_AT = 32
"""So many marks a kill or a submission looks at, to remove old ones. More than one is enough to bound their number."""
_LOCK_RETRY_S = 0.05


class Kind(enum.Enum):
    """What is kept; the value is the folder below the root."""

    TOPOLOGIES = "topologies"
    PACKINGPLANS = "packingplans"
    NEXTPACKINGPLANS = "nextpackingplans"
    PPLANS = "pplans"
    EXECUTIONSTATE = "executionstate"
    SCHEDULERS = "schedulers"
    TMASTERS = "tmasters"
    LOCKS = "locks"
    STATEFULCHECKPOINTS = "statefulcheckpoints"
    LOGLEVELS = "loglevels"
    EPOCHS = "epochs"
    CONTAINERS = "containers"
    LAUNCHES = "launches"
    DRIVERORDERS = "driverorders"
    DRIVERS = "drivers"
    TOMBSTONES = "tombstones"
    PIPELINES = "pipelines"


def container_node(topology: str, container: int) -> str:
    """The node of a container in `Kind.CONTAINERS`."""
    return f"{topology}__{container}"


def container_record(value: bytes | None) -> state_pb2.ContainerRecord:
    """The record that a node of `Kind.CONTAINERS` holds; an empty one if it is missing, or damaged.

    A damaged record is as good as a lost one: its container writes it again, or takes the next incarnation.
    """
    try:
        return state_pb2.ContainerRecord.FromString(value or b"")
    except DecodeError:
        return state_pb2.ContainerRecord()


def is_container_node(node: str, topology: str) -> bool:
    """Whether a node of `Kind.CONTAINERS` is of a container of this topology."""
    owner, _, container = node.rpartition("__")
    return owner == topology and container.isdecimal()


def check_name(name: str, what: str = "topology", bytes_max: int = NAME_BYTES_MAX) -> str:
    """The name itself, if it can be one path element everywhere.

    Raises:
        UsageError: empty, too long, begins with a dot, or has `/`, `..` or an unprintable character in it.
    """
    if not name:
        raise UsageError(f"the {what} name is empty")
    if "/" in name or ".." in name or name.startswith(".") or not name.isprintable():
        raise UsageError(
            f"{name!r} is not a valid {what} name: "
            "it may not begin with a dot nor contain '/', '..' or unprintable characters"
        )
    if len(name.encode()) > bytes_max:
        raise UsageError(f"{name!r} is not a valid {what} name: it is longer than {bytes_max} bytes")
    return name


def check_node(kind: Kind, name: str) -> str:
    """The name itself, if a node of this kind may have it. Raises UsageError like `check_name`."""
    if kind is Kind.LOCKS:
        return check_name(name, "lock", NAME_BYTES_MAX + 2 + LOCK_BYTES_MAX)
    if kind is Kind.CONTAINERS:
        return check_name(name, "container", NAME_BYTES_MAX + 2 + CONTAINER_BYTES_MAX)
    if kind is Kind.TOMBSTONES:
        return check_name(name, "topology id", NAME_BYTES_MAX + ID_BYTES_MAX)
    return check_name(name)


def check_condition(kind: Kind, expected: bytes | None, of: Kind | None) -> None:
    """Refuse a condition of `set_if` that not every store can check at once with the write."""
    if expected is None and of not in (None, kind):
        raise UsageError(f"a write to {kind.value} cannot depend on the absence of a node in another folder")


class StateManager(ABC):
    """Small durable values in a tree, with watches, ephemeral nodes and locks. Thread-safe; every call is bounded.

    All methods raise `UsageError` for a name that cannot be a node's, and `StateError` when the store cannot be read or
    written. After a `StateError` of a change it is unknown whether the change happened: read, or do it again.

    A state manager belongs to the process that opened it. A forked child opens its own.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False

    @abstractmethod
    def get(self, kind: Kind, topology: str) -> bytes | None:
        """The newest value, or None if there is no such node (or the owner of an ephemeral one is gone)."""

    @abstractmethod
    def set(self, kind: Kind, topology: str, value: bytes) -> None:
        """Create or replace. Atomic: a reader sees the old or the new value. Durable on return.

        A node that this state manager created as ephemeral stays so.

        Raises:
            AlreadyExistsError: it is the ephemeral node of somebody else who lives.
        """

    @abstractmethod
    def create(self, kind: Kind, topology: str, value: bytes, *, ephemeral: bool = False) -> None:
        """Create, if no other caller did: of several callers at once exactly one succeeds.

        Args:
            kind: The folder.
            topology: The node's name.
            value: At most 1 MB fits into every state manager.
            ephemeral: The node vanishes with this state manager's session: when it is closed, or its process ends in
                any way. Where sessions can be lost (ZooKeeper), the node is made again in the next one, unless somebody
                else was quicker; an owner that must know watches its own node.

        Raises:
            AlreadyExistsError: it exists (and, if it is ephemeral, its owner lives).
        """

    @abstractmethod
    def set_if(
        self, kind: Kind, topology: str, value: bytes, *, expected: bytes | None, of: Kind | None = None
    ) -> bool:
        """Create or replace a node, but only while another one, or itself, has a certain value. Atomic and durable.

        With `of` omitted this is compare-and-set. With `of` it is a fenced write: the process that may write is named
        in the node `of`, and one that was replaced there can write nothing more. Values that are compared must be
        unique (an id or a growing number in them): A, B, A looks like A.

        Args:
            kind: The folder of the node to write.
            topology: The name of both nodes.
            value: The new value.
            expected: The value that node `of` must have; None: there must be no such node (of the same kind only).
            of: The folder of the node to compare; by default `kind`.

        Returns:
            Whether the node has now been written.

        Raises:
            AlreadyExistsError: it is the ephemeral node of somebody else who lives.
        """

    @abstractmethod
    def delete(self, kind: Kind, topology: str) -> bool:
        """Remove the node, whatever its owner. False if there was none."""

    @abstractmethod
    def list(self, kind: Kind) -> list[str]:
        """The names of a folder, sorted."""

    @abstractmethod
    def watch(self, kind: Kind, topology: str, callback: Callable[[bytes | None], None]) -> Watch:
        """Follow one node.

        `callback` gets the value now, and then each new one (None: there is no such node); it may miss values that were
        replaced at once, never the last. It is called from one thread of the state manager, which it must not hold up.
        While the store is out of reach nothing is called; when it is back, the change in between is.
        """

    def remove_topology(self, topology: str) -> None:
        """Remove all that is kept of a topology, except its locks, which are their holders'. Safe to repeat.

        The execution state goes after everything else: by it a removal that was interrupted finds the topology again.
        Before everything else it is marked as removed, since a Topology Master that still lives, or is back after it
        was cut off, writes nodes again that vanish.
        Containers are looked for once more afterwards: one that has taken an incarnation meanwhile either sees that the
        topology is gone, and removes its record itself, or wrote it before this second look.
        """
        try:
            self._mark_removed(topology)
        except StateError as e:
            log.info("%s; what else is removed of %s may make room for it", e, topology)
            self._remove_but_execution(topology)
            self._mark_removed(topology)
        self._remove_but_execution(topology)
        self.delete(Kind.EXECUTIONSTATE, topology)
        self._remove_containers(topology)

    def bury(self, topology_id: str, now_s: Callable[[], float] = time.time) -> None:
        """Mark a submission as killed, for those of its processes that are cut off now: they must not bring it back.

        Marks that are older than `TOMBSTONE_S` are removed.
        """
        self.set(Kind.TOMBSTONES, topology_id, str(int(now_s())).encode())
        self.expire_tombstones(now_s)

    def expire_tombstones(self, now_s: Callable[[], float] = time.time) -> None:
        """Remove marks of killed submissions that are older than `TOMBSTONE_S`, or at least some of many."""
        others = self.list(Kind.TOMBSTONES)
        for other in random.sample(others, min(len(others), _TOMBSTONES_LOOKED_AT)):
            value = self.get(Kind.TOMBSTONES, other)
            if value is not None and not (value.isdigit() and now_s() - int(value) <= TOMBSTONE_S):
                self.delete(Kind.TOMBSTONES, other)

    def is_buried(self, topology_id: str) -> bool:
        """Whether a submission was killed, not longer than `TOMBSTONE_S` ago."""
        return self.get(Kind.TOMBSTONES, topology_id) is not None

    def _mark_removed(self, topology: str) -> None:
        value = self.get(Kind.EXECUTIONSTATE, topology)
        if value is None:
            return
        try:
            execution = state_pb2.ExecutionState.FromString(value)
        except DecodeError:
            return  # nothing that runs has such a state
        execution.removed = True
        self.set_if(Kind.EXECUTIONSTATE, topology, execution.SerializeToString(), expected=value)

    def _remove_but_execution(self, topology: str) -> None:
        self._remove_containers(topology)
        for kind in Kind:
            if kind not in (Kind.EXECUTIONSTATE, Kind.LOCKS, Kind.CONTAINERS, Kind.TOMBSTONES):
                self.delete(kind, topology)

    def _remove_containers(self, topology: str) -> None:
        for node in self.list(Kind.CONTAINERS):
            if is_container_node(node, topology):
                self.delete(Kind.CONTAINERS, node)

    def close(self) -> None:
        """End the session: watches end, ephemeral nodes vanish. Never raises; a second call does nothing."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._close()

    @abstractmethod
    def _close(self) -> None:
        """Release everything within a bounded time."""

    @abstractmethod
    def _delete_own(self, kind: Kind, name: str, value: bytes) -> bool:
        """Remove an ephemeral node of this session that still has `value`. False if it is not (or no longer) ours.

        If the store cannot be reached now, the node is removed as soon as it can be, and StateError raised.
        """

    @contextlib.contextmanager
    def lock(self, topology: str, name: str, timeout_s: float = 5.0) -> Iterator[None]:
        """Hold a lock of a topology for the duration of the block. It is released when the holder dies; not reentrant.

        Raises:
            UnavailableError: somebody else held it for `timeout_s` seconds.
            StateError: at the end of the block: the lock was lost while it was held (the session expired), so somebody
                else may have held it too.
        """
        node = check_name(topology) + "__" + check_name(name, "lock", LOCK_BYTES_MAX)
        token = f"{socket.gethostname()} pid {os.getpid()} {uuid.uuid4().hex}".encode()
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                self.create(Kind.LOCKS, node, token, ephemeral=True)
                break
            except AlreadyExistsError:
                if time.monotonic() >= deadline_s:
                    raise UnavailableError(
                        f"the lock {name!r} of topology {topology!r} is held by {self._holder(node)}: "
                        f"waited {timeout_s:g} s"
                    ) from None
            time.sleep(_LOCK_RETRY_S)
        try:
            yield
        except BaseException:
            # What went wrong in the block matters more than the lock.
            with contextlib.suppress(StateError):
                self._delete_own(Kind.LOCKS, node, token)
            raise
        if not self._delete_own(Kind.LOCKS, node, token):
            raise StateError(f"the lock {name!r} of topology {topology!r} was lost while it was held")

    def _holder(self, node: str) -> str:
        value = self.get(Kind.LOCKS, node)
        return value.decode(errors="replace").rpartition(" ")[0] if value else "somebody who has just gone"

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise StateError("this state manager was opened by the parent process: open another one")
        if self._closed:
            raise StateError("the state manager is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
