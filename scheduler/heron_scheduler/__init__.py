"""Schedulers: what starts, moves and ends the containers of a topology.

A scheduler implements `Scheduler` and is found by its name (`scheduler_of`). One service process per topology,
`python -m heron_scheduler.service --dir <topology directory>`, calls it; `launch_service`, `kill`, `restart` and
`job_links` are that service seen from outside. They block: from a coroutine call them through `asyncio.to_thread`.
"""

from heron_scheduler._client import (
    end_processes,
    ensure_service,
    job_links,
    kill,
    launch_service,
    owned_by,
    restart,
    revive,
)
from heron_scheduler._engine_state import remove_engine_state
from heron_scheduler._local import LocalScheduler
from heron_scheduler._spi import Scheduler, scheduler_of

__all__ = [
    "LocalScheduler",
    "Scheduler",
    "end_processes",
    "ensure_service",
    "job_links",
    "kill",
    "launch_service",
    "owned_by",
    "remove_engine_state",
    "restart",
    "revive",
    "scheduler_of",
]
