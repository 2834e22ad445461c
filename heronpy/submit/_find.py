"""Finding the topologies that run.

A topology's directory says which state manager it uses, so whoever has the directory needs no cluster configuration.
Only a topology that was submitted from another HERON_HOME is looked up through the cluster's state manager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from heronpy.config import check_name, clusters, load_cluster
from heronpy.errors import ConfigError, NotFoundError, StateError, nearest
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit._plan import default_role
from heronpy.submit._submit import MARKER


def find(
    home: Path,
    cluster: str,
    role: str | None,
    environ: str,
    name: str,
    *,
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
) -> Launch:
    """The topology of this name.

    Args:
        role: Whose; None for the unix user.

    Raises:
        NotFoundError: there is none; names the nearest that runs.
        ConfigError: unknown cluster, or a name that cannot be one.
    """
    role = check_name("role", role or default_role())
    check_name("environment", environ)
    check_name("topology name", name)
    check_name("cluster", cluster)
    launch = _load(home / "topologies" / cluster / role / environ / name)
    if launch is not None:
        return launch
    others = running(home, cluster, properties=properties, config_path=config_path)
    for other in others:
        if (other.role, other.environ, other.topology) == (role, environ, name):
            return other
    raise _not_found(f"{cluster}/{role}/{environ}", name, others)


def find_by_name(home: Path, name: str) -> Launch:
    """The only topology of this name among those submitted from `home`.

    Raises:
        NotFoundError: there is none; names the nearest that runs.
        ConfigError: there are several, so the cluster must be named.
    """
    everything = running(home)
    found = [launch for launch in everything if launch.topology == name]
    if len(found) > 1:
        where = ", ".join(_where(launch) for launch in found)
        raise ConfigError(f"topology {name} runs as {where}: name the cluster before the topology")
    if not found:
        raise _not_found("", name, everything)
    return found[0]


def running(
    home: Path,
    cluster: str | None = None,
    *,
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
) -> list[Launch]:
    """The topologies that were submitted and not killed, sorted by place and name.

    Args:
        cluster: Only this one's, including those from another HERON_HOME; None for all that were submitted from `home`.

    Raises:
        ConfigError: unknown cluster.
        StateError: the state manager cannot be read.
    """
    root = home / "topologies"
    try:
        directories = list(
            root.glob("*/*/*/*") if cluster is None else root.glob(f"{check_name('cluster', cluster)}/*/*/*")
        )
        found = {launch.dir: launch for d in directories if (launch := _load(d)) is not None}
    except OSError as e:
        raise StateError(f"{root} cannot be read: {e.strerror}") from e
    if cluster is not None and (cluster in clusters(config_path) or not found):
        for launch in _in_state(home, cluster, properties, config_path):
            found.setdefault(launch.dir, launch)
    return sorted(found.values(), key=lambda x: (x.cluster, x.role, x.environ, x.topology))


def _in_state(
    home: Path, cluster: str, properties: Mapping[str, Any] | None, config_path: str | Path | None
) -> list[Launch]:
    config = load_cluster(cluster, home=home, role=default_role(), properties=properties, config_path=config_path)
    if config.statemgr_type == "file" and not Path(config.statemgr_root).exists():
        return []  # nothing was ever submitted; looking must not make directories
    spec = StatemgrSpec(type=config.statemgr_type, connection=config.statemgr_connection, root=config.statemgr_root)
    found = []
    with contextlib.closing(open_statemgr(spec)) as state:
        for name in state.list(Kind.EXECUTIONSTATE):
            raw = state.get(Kind.EXECUTIONSTATE, name)
            launch = raw and _load(Path(state_pb2.ExecutionState.FromString(raw).topology_dir))
            if launch:
                found.append(launch)
    return found


def _load(directory: Path) -> Launch | None:
    if (directory / MARKER).exists():
        return None
    try:
        return Launch.load(directory)
    except (NotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        raise StateError(f"{directory} cannot be read: {e.strerror}") from e
    except (KeyError, TypeError, yaml.YAMLError) as e:
        raise StateError(f"{directory / 'launch.yaml'} is damaged: {e}") from e


def _where(launch: Launch) -> str:
    return f"{launch.cluster}/{launch.role}/{launch.environ}"


def _not_found(where: str, name: str, others: list[Launch]) -> NotFoundError:
    elsewhere = [f"{_where(other)} {other.topology}" for other in others if other.topology == name]
    hint = f"; it runs as `{elsewhere[0]}`" if elsewhere else nearest(name, [other.topology for other in others])
    return NotFoundError(f"no topology {name!r} runs{f' as {where}' if where else ''}{hint}")
