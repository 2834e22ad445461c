"""What the engine keeps of a topology. Removed by the service, or by who kills without one; never by a scheduler."""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
from pathlib import Path

from heronpy.errors import StateError
from heronpy.proto import state_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, StateManager, open_statemgr

log = logging.getLogger(__name__)


def remove_engine_state(launch: Launch) -> None:
    """Remove a topology whose processes have ended from the state manager and from this host; safe to repeat.

    Raises:
        StateError: the state manager cannot be written, or a directory cannot be removed.
    """
    with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as statemgr:
        remove_nodes(statemgr, launch)
    root = launch.socket_root()
    _remove_tree(root)
    _remove_if_empty(root.parent)
    _remove_tree(launch.dir)
    log.info("topology %s is removed", launch.topology)


def remove_nodes(statemgr: StateManager, launch: Launch) -> None:
    """Remove a topology from a state manager, unless its name is another submission's by now.

    Raises:
        StateError: it cannot be written.
    """
    if is_ours(statemgr, launch):
        statemgr.remove_topology(launch.topology)


def is_ours(statemgr: StateManager, launch: Launch) -> bool:
    """Whether the state under the topology's name is of this submission, not of a later one with the same name."""
    value = statemgr.get(Kind.EXECUTIONSTATE, launch.topology)
    return value is None or state_pb2.ExecutionState.FromString(value).topology_id == launch.topology_id


def _remove_tree(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as e:
        raise StateError(f"{path} cannot be removed: {e.strerror or e}") from e


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except FileNotFoundError:
        return
    except OSError as e:
        if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else another topology has its sockets there
            raise StateError(f"{path} cannot be removed: {e.strerror or e}") from e
