"""What the engine keeps of a topology. Removed by the service, or by who kills without one; never by a scheduler."""

from __future__ import annotations

import contextlib
import logging

from heron_scheduler._spi import scheduler_of
from heronpy.errors import DamagedStateError, StateError
from heronpy.host import remove_directory
from heronpy.runtime import Launch
from heronpy.statemgr import StateManager, open_statemgr, records

log = logging.getLogger(__name__)


def remove_engine_state(launch: Launch) -> None:
    """Remove a topology whose processes have ended from the state manager and from this host; safe to repeat.

    Raises:
        StateError: the state manager cannot be written, or a directory cannot be removed.
    """
    with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as statemgr:
        remove_nodes(statemgr, launch)
    remove_directories(launch)


def remove_directories(launch: Launch) -> None:
    """Remove what is on this host of a topology that is gone from the state manager.

    Raises:
        StateError: a directory cannot be removed.
    """
    for directory in (*launch.own_sockets(), launch.dir):
        try:
            remove_directory(directory)
        except OSError as e:
            raise StateError(f"{directory} cannot be removed: {e.strerror or e}") from e
    launch.remove_sockets()
    log.info("topology %s is removed", launch.topology)


def remove_nodes(statemgr: StateManager, launch: Launch) -> None:
    """Remove a topology from a state manager, unless its name is another submission's by now.

    Raises:
        StateError: it cannot be written.
    """
    if not scheduler_of(launch.scheduler).has_service:  # else all its containers see its directory
        statemgr.bury(launch.topology_id)
    if is_ours(statemgr, launch):
        statemgr.remove_topology(launch.topology)


def is_ours(statemgr: StateManager, launch: Launch) -> bool:
    """Whether the state under the topology's name is of this submission, not of a later one with the same name."""
    try:
        running = records.submission(statemgr, launch.topology)
    except DamagedStateError as e:
        log.warning("%s; it is taken for that of %s", e, launch.topology_id)
        return True
    return running in (None, launch.topology_id)
