"""Every trace of a topology: its directory, the state manager, its processes. Any one of them is enough to list it.

They agree on what runs, as a rule. They do not when a directory was removed by hand, when a submitter or a killer died
half-way, or when HERON_HOME is gone while processes still end. What is left can then be listed and killed; for all
other purposes such a topology does not run, and its `trouble` says why.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import heron_scheduler

from heronpy.config import check_name, is_name
from heronpy.config.cluster import clusters, load_cluster
from heronpy.errors import ConfigError, DamagedStateError, NotFoundError, StateError, UntrustedError
from heronpy.files import outrace_removal
from heronpy.host import (
    DIRECTORY_ENV,
    TOPOLOGY_ENV,
    find_by_environment,
    in_submission,
    is_killed,
    submitter_lives,
)
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, StateManager, records
from heronpy.submit._copies import INCOMPLETE, StateManagers, directory_of, has_copy, launch_in_state, trouble_of
from heronpy.submit._plan import default_role

log = logging.getLogger(__name__)

_NOWHERE = "its execution state is damaged, and its directory is not known"


@dataclass(frozen=True, slots=True)
class Listed:
    """A topology of which there is a trace."""

    launch: Launch
    """What is known of it; made up from the traces where there is no launch file."""
    trouble: str = ""
    """Why it does not run, or not as it should; empty if it does."""


def listed(
    home: Path,
    cluster: str | None = None,
    *,
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
) -> list[Listed]:
    """All topologies of which there is a trace, sorted by place and name.

    Args:
        cluster: Only this one's, including those from another HERON_HOME; None for all that were submitted from `home`.

    Raises:
        ConfigError: unknown cluster.
        StateError: the state manager, or the directory of the topologies, cannot be read.
    """
    return traces(home, cluster, properties=properties, config_path=config_path, states=StateManagers())


def traces(
    home: Path,
    cluster: str | None,
    *,
    properties: Mapping[str, Any] | None,
    config_path: str | Path | None,
    states: StateManagers,
) -> list[Listed]:
    """The same, of a command that has asked some state managers before."""
    specs = _Specs(home, properties, config_path)
    found = {one.launch.dir: one for one in _in_directories(home, cluster, specs, states)}
    if cluster is not None:
        known = specs.of(cluster) if cluster in clusters(config_path) or not found else None
        places = [known] if known is not None else []
    else:
        places = specs.files()
    for spec in places:
        for one in _in_state(spec, home, states, everywhere=cluster is not None):
            found[one.launch.dir] = _merged(found.get(one.launch.dir), one)
    for one in _in_processes(home, cluster, specs):
        found[one.launch.dir] = _merged(found.get(one.launch.dir), one)
    return sorted(found.values(), key=lambda x: (*_place(x.launch), x.launch.topology))


def check_owner(directory: Path) -> None:
    """Refuse a topology's directory of which somebody else decides what is in it: its code would run as this user.

    Raises:
        UntrustedError: it belongs to another user, or is a symbolic link.
        FileNotFoundError: it does not exist.
    """
    found = directory.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise UntrustedError(f"{directory} is a symbolic link: refused")
    if found.st_uid not in (os.geteuid(), 0):
        raise UntrustedError(f"{directory} belongs to another user (uid {found.st_uid}): refused")


def load(directory: Path) -> Launch | None:
    """The launch file of a directory of this user; None if there is none.

    Raises:
        StateError: it cannot be read, is damaged, or belongs to somebody else.
    """
    try:
        check_owner(directory)
        return Launch.load(directory, any_release=True)
    except (NotFoundError, NotADirectoryError, FileNotFoundError):
        return None
    except OSError as e:
        raise StateError(f"{directory} cannot be read: {e.strerror}") from e


class _Specs:
    """Where the state of each cluster is."""

    def __init__(self, home: Path, properties: Mapping[str, Any] | None, config_path: str | Path | None) -> None:
        self._home, self._properties, self._config_path = home, properties, config_path

    def of(self, cluster: str) -> StatemgrSpec:
        """The state manager of a cluster. Raises ConfigError for an unknown one."""
        config = load_cluster(
            cluster,
            home=self._home,
            role=default_role(),
            properties=self._properties,
            config_path=self._config_path,
        )
        return StatemgrSpec.of(config)

    def files(self) -> list[StatemgrSpec]:
        """Those that are files: they can be looked at in no time."""
        specs = []
        for cluster in clusters(self._config_path):
            with contextlib.suppress(ConfigError):  # of a cluster that was not asked about
                specs.append(self.of(cluster))
        return [spec for spec in dict.fromkeys(specs) if spec.type == "file"]

    def guessed(self, cluster: str) -> StatemgrSpec:
        """The state manager of a cluster that may be configured no longer."""
        with contextlib.suppress(ConfigError):
            return self.of(cluster)
        return StatemgrSpec(root=str(self._home / "state" / cluster))


def _in_directories(home: Path, cluster: str | None, specs: _Specs, states: StateManagers) -> list[Listed]:
    root = home / "topologies"
    pattern = "*/*/*/*" if cluster is None else f"{check_name('cluster', cluster)}/*/*/*"
    try:
        found = outrace_removal(lambda: list(root.glob(pattern)))
    except OSError as e:
        raise StateError(f"{root} cannot be read: {e.strerror}") from e
    # Names of topologies begin with no dot; copies that are not complete yet do.
    directories = [d for d in found if d.is_dir() and not d.name.startswith(".")]
    return [one for d in directories if (one := _in_directory(d, home, specs, states)) is not None]


def _in_directory(directory: Path, home: Path, specs: _Specs, states: StateManagers) -> Listed | None:
    try:
        if in_submission(directory) and submitter_lives(directory):
            return None  # it does not run yet
        launch, trouble = load(directory), ""
    except StateError as e:
        launch, trouble = None, str(e)
    if launch is None:
        made_up = _made_up(directory, home, specs)
        if made_up is None:
            return None
        return Listed(made_up, trouble or "its launch file is missing")
    if in_submission(directory):
        return Listed(launch, "its submission was interrupted")
    if has_copy(launch):
        why = trouble_of(launch, states)
        return None if why is None else Listed(launch, why)
    return Listed(launch, "it is being killed" if is_killed(directory) else "")


def _in_state(spec: StatemgrSpec, home: Path, states: StateManagers, *, everywhere: bool) -> list[Listed]:
    """Those that a state manager knows; only those from this home, unless from everywhere."""
    if spec.type == "file" and not Path(spec.root).exists():
        return []  # nothing was ever submitted; looking must not make directories
    found = []
    with states.open(spec) as state:
        for name in state.list(Kind.EXECUTIONSTATE):
            if (raw := state.get(Kind.EXECUTIONSTATE, name)) is None:
                continue
            execution = _execution(state, name, raw)
            if execution is not None and (everywhere or home in Path(execution.topology_dir).parents):
                found.append(_of_execution(state, execution, spec, home))
    return [one for one in found if one is not None]


def _execution(state: StateManager, name: str, raw: bytes) -> state_pb2.ExecutionState | None:
    """An execution state; where it is damaged, what launch values and processes say of the topology, or None.

    The directory is not known then, and empty, if none of its processes runs on this host.
    """
    try:
        found = records.execution_state(name, raw)
        if _is_named(found, name):
            return found
        log.warning("node %s/%s of the state manager is damaged: it names no topology", Kind.EXECUTIONSTATE.value, name)
    except DamagedStateError as e:
        log.warning("%s", e)
    try:
        launch = Launch.decode(state.get(Kind.LAUNCHES, name) or b"", Path(name))
    except StateError:
        return None
    if not _is_named(launch, name):
        return None
    own = find_by_environment({TOPOLOGY_ENV: launch.topology_id})
    return state_pb2.ExecutionState(
        topology=launch.topology,
        topology_id=launch.topology_id,
        cluster=launch.cluster,
        role=launch.role,
        environ=launch.environ,
        topology_dir=next((env[DIRECTORY_ENV] for _, env in own if DIRECTORY_ENV in env), ""),
    )


def _is_named(found: state_pb2.ExecutionState | Launch, name: str) -> bool:
    """Whether what a state manager has under a name is of a topology of that name, at a place that can be one."""
    return found.topology == name and all(map(is_name, (found.cluster, found.role, found.environ, name)))


def _of_execution(
    state: StateManager, execution: state_pb2.ExecutionState, spec: StatemgrSpec, home: Path
) -> Listed | None:
    place = execution.cluster, execution.role, execution.environ, execution.topology
    directory = Path(execution.topology_dir or directory_of(home, *place))
    gone = "its directory is gone" if execution.topology_dir else _NOWHERE
    if not _is_place(directory, place):
        # What is left of a topology can be removed, and a writer to the state manager can name any directory.
        gone = f"the state manager names {execution.topology_dir!r:.200} as its directory, which is not a topology's"
        directory = directory_of(home, *place)
    try:
        elsewhere = home not in directory.parents or not directory.exists()
        if elsewhere and (launch := launch_in_state(state, execution, spec, home)) is not None:
            return Listed(launch, "" if heron_scheduler.means_to_run(state, launch) else INCOMPLETE)
        if in_submission(directory) and submitter_lives(directory):
            return None
        launch, trouble = load(directory), gone
    except StateError as e:
        launch, trouble = None, str(e)
    if launch is not None:
        return Listed(launch)
    made_up = Launch(
        topology=execution.topology,
        topology_id=execution.topology_id,
        cluster=execution.cluster,
        role=execution.role,
        environ=execution.environ,
        statemgr=spec,
        dir=directory,
    )
    return Listed(made_up, trouble)


def _is_place(directory: Path, place: tuple[str, str, str, str]) -> bool:
    """Whether a submission to this place makes this directory, below whichever HERON_HOME."""
    return directory.is_absolute() and Path(os.path.normpath(directory)).parts[-5:] == ("topologies", *place)


def _in_processes(home: Path, cluster: str | None, specs: _Specs) -> list[Listed]:
    """Those of which processes run that were started from `home`."""
    ids: dict[Path, str] = {}
    for _, env in find_by_environment({}):
        if TOPOLOGY_ENV in env and DIRECTORY_ENV in env:
            ids.setdefault(Path(env[DIRECTORY_ENV]), env[TOPOLOGY_ENV])
    found = []
    for directory, topology_id in ids.items():
        launch = _made_up(directory, home, specs)
        if launch is None or cluster not in (None, launch.cluster):
            continue
        try:
            trouble = "" if in_submission(directory) and submitter_lives(directory) else "only processes of it are left"
        except StateError as e:
            trouble = str(e)
        if trouble:
            found.append(Listed(replace(launch, topology_id=topology_id), trouble))
    return found


def _made_up(directory: Path, home: Path, specs: _Specs) -> Launch | None:
    """What a directory's place says; None if it is not where a topology's directory is."""
    try:
        first, cluster, role, environ, name = directory.relative_to(home).parts
    except ValueError:
        return None
    if first != "topologies" or not all(map(is_name, (cluster, role, environ, name))):
        return None
    return Launch(
        topology=name,
        topology_id="",
        cluster=cluster,
        role=role,
        environ=environ,
        statemgr=specs.guessed(cluster),
        dir=directory,
    )


def _merged(one: Listed | None, other: Listed) -> Listed:
    """What two traces of one directory say together: the first that found a launch file, and an id from anywhere."""
    if one is None:
        return other
    if one.launch.topology_id:
        return one
    return replace(one, launch=replace(other.launch, statemgr=one.launch.statemgr))


def _place(launch: Launch) -> tuple[str, str, str]:
    return launch.cluster, launch.role, launch.environ
