"""Issuing and renewing a topology's certificates, by a process that runs no user code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from heronpy.errors import HeronError
from heronpy.runtime import Launch

log = logging.getLogger(__name__)

FIRST_CHECK_S = 60.0
"""Not at once: a service that starts is waited for, and what reads certificates costs a quarter of its start."""
CHECK_S = 3600.0


def issue_missing(launch: Launch, containers: Iterable[int]) -> None:
    """Issue certificates for containers that have none: those that were added after submit.

    Raises:
        StateError: the directory of the certificates belongs to another user.
        OSError: it cannot be written.
    """
    missing = [n for n in containers if not (launch.tls_dir / f"container-{n}.pem").exists()]
    if not missing or not launch.config.security.tls:
        return
    from heronpy.security import authority  # here, because no service needs it at its start

    authority.create(launch.tls_dir, launch.topology_id, missing, days=launch.config.security.certificate_days)
    log.info("issued certificates for containers %s", ", ".join(map(str, missing)))


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
