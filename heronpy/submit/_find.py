"""Finding the topologies that run.

A topology's directory says which state manager it uses, so a user with the directory needs no cluster configuration.
Only a topology that was submitted from another HERON_HOME is looked up through the cluster's state manager.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heronpy.config import check_name
from heronpy.errors import ConfigError, NotFoundError, nearest
from heronpy.host import in_submission, is_killed
from heronpy.runtime import Launch
from heronpy.submit._copies import StateManagers, adopted, directory_of, has_copy, trouble_of
from heronpy.submit._listed import Listed, listed, load, traces
from heronpy.submit._plan import default_role


def find(
    home: Path,
    cluster: str,
    role: str | None,
    environ: str,
    name: str,
    *,
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
    troubled: bool = False,
) -> Launch:
    """The topology of this name.

    Args:
        role: Whose; None for the unix user.
        troubled: Also one of which only traces are left: to kill it.

    Raises:
        NotFoundError: there is none; names the nearest that runs.
        StateError: its directory cannot be read, or belongs to somebody else.
        UnavailableError: it was submitted from elsewhere, and its cluster does not hand over its secrets.
        ConfigError: unknown cluster, or a name that cannot be one.
    """
    role = check_name("role", role or default_role())
    check_name("environment", environ)
    check_name("topology name", name)
    check_name("cluster", cluster)
    directory = directory_of(home, cluster, role, environ, name)
    undecided, states = in_submission(directory) or is_killed(directory), StateManagers()
    launch = None if undecided else load(directory)
    if launch is not None and (not has_copy(launch) or trouble_of(launch, states) == ""):
        return launch
    others = traces(home, cluster, properties=properties, config_path=config_path, states=states)
    for other in others:
        if (other.launch.role, other.launch.environ, other.launch.topology) == (role, environ, name):
            return _checked(other, troubled)
    raise _not_found(f"{cluster}/{role}/{environ}", name, others)


def find_by_name(home: Path, name: str, *, troubled: bool = False) -> Launch:
    """The only topology of this name among those submitted from `home`; `troubled` as in `find`.

    Raises:
        NotFoundError: there is none; names the nearest that runs.
        ConfigError: there are several, so the cluster must be named.
    """
    everything = listed(home)
    found = [one for one in everything if one.launch.topology == name]
    if len(found) > 1:
        where = ", ".join(_where(one.launch) for one in found)
        raise ConfigError(f"topology {name} runs as {where}: name the cluster before the topology")
    if not found:
        raise _not_found("", name, everything)
    return _checked(found[0], troubled)


def running(
    home: Path,
    cluster: str | None = None,
    *,
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
) -> list[Launch]:
    """The topologies that were submitted and not killed, and whose files are all there; sorted by place and name.

    Args:
        cluster: Only this one's, including those from another HERON_HOME; None for all that were submitted from `home`.

    Raises:
        ConfigError: unknown cluster.
        StateError: the state manager cannot be read.
    """
    found = listed(home, cluster, properties=properties, config_path=config_path)
    return [one.launch for one in found if not one.trouble]


def _where(launch: Launch) -> str:
    return f"{launch.cluster}/{launch.role}/{launch.environ}"


def _checked(found: Listed, troubled: bool) -> Launch:
    if found.trouble and not troubled:
        raise NotFoundError(
            f"topology {found.launch.topology} does not run: {found.trouble}; "
            f"`heron kill {_where(found.launch)} {found.launch.topology}` removes what is left of it"
        )
    return adopted(found.launch, needs_secrets=not troubled)


def _not_found(where: str, name: str, others: list[Listed]) -> NotFoundError:
    names = [other.launch.topology for other in others]
    elsewhere = [f"{_where(other.launch)} {name}" for other in others if other.launch.topology == name]
    hint = f"; it runs as `{elsewhere[0]}`" if elsewhere else nearest(name, names)
    return NotFoundError(f"no topology {name!r} runs{f' as {where}' if where else ''}{hint}")
