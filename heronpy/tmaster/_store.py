"""The state manager as the core's effects use it, and the copy of what it holds."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path

from heronpy.errors import AlreadyExistsError, HeronError, NotFoundError, ReadFailedError
from heronpy.files import read_owned_file, replace_file
from heronpy.statemgr import Kind, StateManager
from heronpy.tmaster._store_effects import (
    ClaimNode,
    NodeClaimed,
    NodesRead,
    NodeWritten,
    ReadNodes,
    StoreEffect,
    StoreFailed,
    WriteNode,
)

log = logging.getLogger(__name__)

COPY_BYTES_MAX = 64 << 20

Answer = NodeClaimed | NodesRead | NodeWritten | StoreFailed


def carry_out(state: StateManager, topology: str, effect: StoreEffect) -> Answer:
    """Do what an effect asks for; takes a bounded time. For a thread: it blocks."""
    try:
        match effect:
            case ClaimNode(location):
                return NodeClaimed(effect, _claim(state, topology, location), time.monotonic())
            case ReadNodes(kinds):
                values = {kind: state.get(kind, topology) for kind in kinds}
                return NodesRead(effect, values, time.monotonic())
            case WriteNode(kind, value, expected, of):
                done = state.set_if(kind, topology, value, expected=expected, of=of)
                return NodeWritten(effect, done, time.monotonic())
    except HeronError as e:
        return StoreFailed(effect, str(e), time.monotonic())


def _claim(state: StateManager, topology: str, location: bytes) -> bool:
    """Create the node unless it exists; whether it is ours."""
    found = state.get(Kind.TMASTERS, topology)
    if found is not None:
        return found == location
    try:
        state.create(Kind.TMASTERS, topology, location, ephemeral=True)
    except AlreadyExistsError:
        return state.get(Kind.TMASTERS, topology) == location
    return True


class NodeCopies:
    """Values of nodes as files in the topology's directory, for a Topology Master beside an empty state manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self) -> Mapping[Kind, bytes | ReadFailedError]:
        """What was kept; the error in place of a value that may be there, and cannot be read now."""
        found: dict[Kind, bytes | ReadFailedError] = {}
        for kind in Kind:
            try:
                found[kind] = read_owned_file(self._directory / kind.value, max_bytes=COPY_BYTES_MAX)
            except NotFoundError:
                continue
            except ReadFailedError as e:
                found[kind] = e
            except HeronError as e:
                log.warning("the copy of %s is not used: %s", kind.value, e)
        return found

    def keep(self, kind: Kind, value: bytes) -> None:
        """Keep a value. A full disk costs the copy, not the Topology Master."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._directory / kind.value, value, durable=False, mode=0o600)
        except OSError as e:
            log.warning("no copy of %s is kept: %s", kind.value, e)
