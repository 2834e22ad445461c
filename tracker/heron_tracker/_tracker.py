"""One Tracker's parts, and how its routes access them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import Depends, Query, Request

from heron_tracker._config import TrackerConfig
from heron_tracker._credentials import Credentials
from heron_tracker._directory import Directory
from heron_tracker._events import Events
from heron_tracker._own_metrics import OwnMetrics
from heron_tracker._remembered import Remembered
from heron_tracker._shells import Shells
from heron_tracker._stored_checkpoints import StoredCheckpoints
from heron_tracker._summary import Measured
from heron_tracker._tmasters import Tmasters
from heron_tracker._topology import Topology

log = logging.getLogger(__name__)

ACTIONS_MAX = 4
"""Most actions on topologies at a time: each may take a minute, and a thread."""
CALCULATIONS_MAX = 2
"""Most metrics queries that are calculated at a time."""
LOOKS_MAX = 4
"""Most looks into instances at a time: each may take seconds, and a thread."""
FIRST_ANSWER_S = 10.0
"""How long the start waits for the state managers. The topologies of a slower one follow when it answers."""


class Tracker:
    """One Tracker: its state managers, its Topology Masters, its events and metrics."""

    def __init__(self, config: TrackerConfig) -> None:
        self.config = config
        self.metrics = OwnMetrics()
        self.directory = Directory(config.statemgrs)
        self.credentials = Credentials(config, self._renewed)
        self.tmasters = Tmasters(self.credentials.launch, self.metrics.called)
        self.shells = Shells(self.credentials.launch, self.directory.container_record)
        self.remembered: Remembered[Measured] = Remembered()
        self.stored = StoredCheckpoints()
        self.events = Events(self.directory)
        self.looks = asyncio.Semaphore(LOOKS_MAX)
        self.calculating = asyncio.Semaphore(CALCULATIONS_MAX)
        self.acting = asyncio.Semaphore(ACTIONS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self.directory.listen(self._keep)
        self.metrics.follow(self.directory, self.events)

    def _keep(self) -> None:
        topologies = self.directory.topologies.values()
        self.credentials.keep(topologies)
        self.tmasters.keep(topologies)
        self.shells.keep(topologies)
        self.remembered.keep(topology.id for topology in topologies)
        self.stored.keep(topology.id for topology in topologies)

    def _renewed(self, topology: Topology) -> None:
        self.tmasters.forget(topology)
        self.shells.forget(topology)

    def keep_running(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it ends, although its caller has gone; its error is logged."""
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s failed: %s", task.get_name(), error)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the state managers for the duration of the block, entered when they have answered or timed out."""
        async with self.credentials.running():
            following = asyncio.create_task(self.directory.run(), name="tracker/directory")
            try:
                await self.directory.answered(FIRST_ANSWER_S)
                yield
            finally:
                self.events.close()
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following
                await self.tmasters.close()
                await self.shells.close()


def _tracker(request: Request) -> Tracker:
    return cast(Tracker, request.app.state.tracker)


TheTracker = Annotated[Tracker, Depends(_tracker)]


def _chosen(
    tracker: TheTracker,
    cluster: Annotated[str, Query(description="The topology's cluster.")],
    environ: Annotated[str, Query(description="Its environment.")],
    topology: Annotated[str, Query(description="Its name.")],
    role: Annotated[str | None, Query(description="Its role; needed only if several have this name.")] = None,
) -> Topology:
    return tracker.directory.find(cluster, environ, topology, role)


TheTopology = Annotated[Topology, Depends(_chosen)]


def _at(tracker: TheTracker, cluster: str, role: str, environ: str, name: str) -> Topology:
    return tracker.directory.find(cluster, environ, name, role)


TopologyAt = Annotated[Topology, Depends(_at)]
"""The topology that the path names."""

Component = Annotated[str, Query(description="A component, or one of the engine's: __stmgr__, __tmaster__, …")]
Metricnames = Annotated[
    list[str] | None, Query(alias="metricname", description="Exact, or a beginning and *; without any: all.")
]
Instances = Annotated[list[str] | None, Query(alias="instance", description="Ids; without any: all.")]
Instance = Annotated[str, Query(description="The id of an instance.")]
Container = Annotated[int, Query(description="The number of a container.")]
FilePath = Annotated[str, Query(description="Below the container's log-files.")]
Starttime = Annotated[int, Query(description="Seconds since the epoch.")]
Endtime = Annotated[int, Query(description="Seconds since the epoch.")]
