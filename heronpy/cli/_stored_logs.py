"""The stored logs of containers and topologies that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.cli._containers import RemoteContainer
from heronpy.cli._target import Place
from heronpy.config import EngineConfig, LoggingConfig
from heronpy.errors import HeronError
from heronpy.runtime import Launch, StatemgrSpec

if TYPE_CHECKING:
    from heronpy.shell.stored import StoredLogs


async def ended_containers(launch: Launch, running: Mapping[int, RemoteContainer]) -> dict[RemoteContainer, StoredLogs]:
    """The containers that are not on this host, and whose last known incarnation has stored its logs.

    Args:
        launch: The topology, with the URI of its log store.
        running: Those that the state manager knows, by number.

    Raises:
        ConfigError: there is no such storage.
        UnavailableError: it does not answer.
    """
    # Here, because few topologies store their logs.
    from heronpy.shell import Container
    from heronpy.shell.stored import StoredLogs, stored_containers

    uri = launch.config.logging.upload_uri
    ended = {}
    for number in await asyncio.to_thread(stored_containers, uri, launch.topology, launch.topology_id):
        if launch.container_dir(number).is_dir():
            continue
        logs = StoredLogs(uri, Container(launch.topology, launch.topology_id, number, launch.dir))
        container = running.get(number, RemoteContainer(number, "", ""))
        if number not in running or await logs.has(container.incarnation):
            ended[container] = logs
    return ended


def ended_topology(
    words: Sequence[str], *, home: Path, config_path: Path | None, properties: Mapping[str, Any]
) -> tuple[Launch, str | None] | None:
    """The last topology that is named by `CLUSTER[/ROLE[/ENV]] NAME [INSTANCE]` and has stored logs, and the instance.

    None if the words name no cluster, or nothing is stored.

    Raises:
        UnavailableError: the log store does not answer.
    """
    if len(words) < 2:
        return None
    from heronpy.config.cluster import load_cluster
    from heronpy.shell.stored import log_store_of, stored_topologies
    from heronpy.submit import default_role

    try:
        place = Place.parse(words[0])
        role, environ, name = place.role or default_role(), place.environ or "default", words[1]
        cluster = load_cluster(
            place.cluster,
            home=home,
            role=role,
            environ=environ,
            topology=name,
            properties=properties,
            config_path=config_path,
        )
        uri = cluster.engine_config({}).logging.upload_uri
    except HeronError:
        return None  # that there is no such topology says more
    if not uri:
        return None
    uri = log_store_of(uri, place.cluster, role, environ)
    ids = stored_topologies(uri, name)
    if not ids:
        return None
    launch = Launch(
        topology=name,
        topology_id=ids[-1],
        cluster=place.cluster,
        role=role,
        environ=environ,
        statemgr=StatemgrSpec(),
        dir=home / "topologies" / place.cluster / role / environ / name,
        config=EngineConfig(logging=LoggingConfig(upload_uri=uri)),
    )
    return launch, words[2] if words[2:] else None
