"""Renewing a topology's certificates in time, by a process that runs no user code."""

from __future__ import annotations

import asyncio
import logging

from heronpy.errors import HeronError
from heronpy.runtime import Launch

log = logging.getLogger(__name__)

FIRST_CHECK_S = 60.0
"""Not at once: a service that starts is waited for, and what reads certificates costs a quarter of its start."""
CHECK_S = 3600.0


async def keep_renewed(launch: Launch) -> None:
    """Renew certificates when a third of their time is left, until cancelled.

    A failure is logged and tried again: there are months to mend it.
    """
    await asyncio.sleep(FIRST_CHECK_S)
    while launch.config.security.tls:
        try:
            await asyncio.to_thread(_renew_due, launch)
        except (HeronError, OSError) as e:
            log.error("certificates cannot be renewed: %s", e)
        await asyncio.sleep(CHECK_S)
    await asyncio.get_running_loop().create_future()


def _renew_due(launch: Launch) -> None:
    from heronpy.security import authority

    days = launch.config.security.certificate_days
    if renewed := authority.renew(launch.tls_dir, launch.topology_id, days=days, only_due=True):
        log.info("renewed the certificates of %s", ", ".join(renewed))
