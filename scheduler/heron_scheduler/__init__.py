"""Schedulers: what starts, moves and ends the containers of a topology.

A scheduler implements `Scheduler` and is found by its name (`scheduler_of`). Where the platform does not look after the
containers by itself (`Scheduler.has_service`), one service process per topology,
`python -m heron_scheduler.service --dir <topology directory>`, calls it; elsewhere `start`, `kill`, `restart`, `update`
and `job_links` call it themselves, and their caller holds the topology's lock (`LOCK`). They are the same functions
for both, and block: from a coroutine call them through `asyncio.to_thread`.
"""

from heron_scheduler._client import (
    containers,
    end_processes,
    ensure_service,
    has_service,
    job_links,
    kill,
    launch_service,
    owned_by,
    renew_secrets,
    restart,
    revive,
    start,
    update,
)
from heron_scheduler._direct import LOCK, LOCK_TIMEOUT_S, adopt, hands_over, means_to_run, read_bootstrap
from heron_scheduler._engine_state import remove_engine_state
from heron_scheduler._local import LocalScheduler
from heron_scheduler._spi import ContainerPhase, ContainerStatus, Scheduler, scheduler_of

__all__ = [
    "LOCK",
    "LOCK_TIMEOUT_S",
    "ContainerPhase",
    "ContainerStatus",
    "LocalScheduler",
    "Scheduler",
    "adopt",
    "containers",
    "end_processes",
    "ensure_service",
    "hands_over",
    "has_service",
    "job_links",
    "kill",
    "launch_service",
    "means_to_run",
    "owned_by",
    "read_bootstrap",
    "remove_engine_state",
    "renew_secrets",
    "restart",
    "revive",
    "scheduler_of",
    "start",
    "update",
]
