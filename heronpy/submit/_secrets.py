"""Secrets of user code that have changed since they were brought to a topology."""

from __future__ import annotations

import heron_scheduler

from heronpy.errors import StateError
from heronpy.runtime import Launch
from heronpy.usersecrets import renewed_secrets, store_secrets


def renew_secrets(launch: Launch) -> list[str]:
    """Read the secrets of a topology again; containers that start from now on have what has changed.

    Returns:
        Which are new, and which stay because they are not on this machine, in words.

    Raises:
        HeronError: one cannot be read, or the cluster cannot bring it to the topology. Then all stay as they were.
    """
    if not launch.secrets:
        return []
    changed, kept = renewed_secrets(launch)
    if changed:
        before = {name: pair[0] for name, pair in changed.items() if pair[0] is not None}
        try:
            store_secrets(launch, {name: new for name, (_, new) in changed.items()})
            try:
                heron_scheduler.renew_secrets(launch)
            except BaseException:
                store_secrets(launch, before)
                raise
        except OSError as e:
            raise StateError(f"secrets of {launch.topology} cannot be written to {launch.dir}: {e.strerror}") from e
    return [*(f"secret {name!r} is renewed" for name in changed), *kept]
