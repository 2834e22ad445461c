"""Topologies that no scheduler service looks after: any machine will do to command them.

The state manager says what runs, and has the launch values; the directory on this machine is a copy, with the secrets
that the scheduler hands over (`heron_scheduler.adopt`), or what the submitter has made. A copy is removed when the
topology was killed elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import heron_scheduler

from heronpy.errors import HeronError, StateError, UnavailableError, UntrustedError
from heronpy.host import remove_directory
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, StateManager, open_statemgr, records

log = logging.getLogger(__name__)

INCOMPLETE = "its submission or its kill was interrupted"


class StateManagers:
    """The state managers that a command opens: one whose servers did not answer once is not waited for again."""

    def __init__(self) -> None:
        self._silent: dict[StatemgrSpec, HeronError] = {}

    @contextlib.contextmanager
    def open(self, spec: StatemgrSpec, *, parents: bool = True) -> Iterator[StateManager]:
        """Open one for the duration of a block; the arguments and errors are those of `open_statemgr`."""
        if (known := self._silent.get(spec)) is not None:
            raise known
        try:
            opened = open_statemgr(spec, parents=parents)
        except (StateError, UnavailableError) as e:
            if spec.type != "file":  # these answer at once, and are made where they are missing
                self._silent[spec] = e
            raise
        with contextlib.closing(opened) as state:
            yield state


def has_copy(launch: Launch) -> bool:
    """Whether `launch.dir` is no more than a copy. A scheduler that is not installed here is taken for one with it."""
    try:
        return not heron_scheduler.has_service(launch)
    except HeronError:
        return True


def trouble_of(launch: Launch, states: StateManagers) -> str | None:
    """Why a topology does not run of which there is a copy here; empty if it does. None: it was killed elsewhere, and
    its copy is removed.
    """
    try:
        with states.open(launch.statemgr, parents=False) as state:
            running = records.submission(state, launch.topology)
            if running == launch.topology_id:
                return "" if heron_scheduler.means_to_run(state, launch) else INCOMPLETE
        if heron_scheduler.containers(launch):  # so it was not killed elsewhere
            if not running:
                return "the state manager does not know it"
            return "the state manager has another submission of it, and the cluster runs this one"
    except (StateError, UnavailableError) as e:
        return str(e)
    log.info("topology %s was killed elsewhere: its copy in %s is removed", launch.topology_id, launch.dir)
    with contextlib.suppress(OSError):
        remove_directory(launch.dir)
    return None


def launch_in_state(
    state: StateManager, execution: state_pb2.ExecutionState, spec: StatemgrSpec, home: Path
) -> Launch | None:
    """The launch values of a topology from the state manager, if its directory need not be the submitter's.

    Raises:
        StateError: they are damaged.
    """
    value = state.get(Kind.LAUNCHES, execution.topology)
    if value is None:
        return None
    directory = directory_of(home, execution.cluster, execution.role, execution.environ, execution.topology)
    launch = Launch.decode(value, directory)
    if launch.topology_id != execution.topology_id or not has_copy(launch):
        return None
    return replace(launch, statemgr=spec)  # as it is reached from here


def directory_of(home: Path, cluster: str, role: str, environ: str, topology: str) -> Path:
    """Where a topology's directory is below HERON_HOME."""
    return home / "topologies" / cluster / role / environ / topology


def adopted(launch: Launch, *, needs_secrets: bool) -> Launch:
    """The same topology, with its secrets in its directory here.

    Args:
        launch: The topology.
        needs_secrets: False: to end it will do without, if the cluster has none any more.

    Raises:
        HeronError: they are not to be had.
    """
    if not has_copy(launch):
        return launch
    try:
        heron_scheduler.adopt(launch)
    except HeronError as e:
        if needs_secrets:
            raise
        log.info("%s is found without its secrets: %s", launch.topology, e)
        return launch
    # A copy that was made before has been compared with what the cluster has; the state manager may say something else.
    if not launch.config.security.tls and Launch.load(launch.dir, any_release=True).config.security.tls:
        raise UntrustedError(
            f"the state manager says that {launch.topology} has no certificates, and its copy in {launch.dir} has them"
        )
    return launch
