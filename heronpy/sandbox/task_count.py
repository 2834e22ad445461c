"""How many processes and threads the kernel counts for a unix user, which is what RLIMIT_NPROC limits."""

from __future__ import annotations

import os
import resource

_TASKS_MAX = 1 << 22
"""The kernel never has more."""


def tasks_counted() -> int:
    """How many processes and threads the kernel counts for this process' unix user; 0 for root, who is not bound.

    The limit is for all of them together, also for those in other containers of this machine. /proc does not show
    these, so it is found out by what the kernel refuses.
    """
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = _TASKS_MAX if hard == resource.RLIM_INFINITY else min(hard, _TASKS_MAX)
    refused, granted = 0, 1
    while granted < most and not _one_more_starts(granted, hard):
        refused, granted = granted, min(2 * granted, most)
    while granted - refused > 1:
        limit = (refused + granted) // 2
        if _one_more_starts(limit, hard):
            granted = limit
        else:
            refused = limit
    resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
    return granted - 1


def _one_more_starts(limit: int, hard: int) -> bool:
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
    try:
        if (pid := os.fork()) == 0:
            os._exit(0)
    except BlockingIOError:
        return False
    os.waitpid(pid, 0)
    return True
