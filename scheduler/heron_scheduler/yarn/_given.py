"""What YARN has given to this process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from heron_scheduler.yarn._credentials import LOCATION_ENV, Credentials
from heron_scheduler.yarn._submission import BOOTSTRAP
from heronpy.errors import StateError


def given_credentials() -> Credentials:
    """The credentials of the container that this process runs in, with a bootstrap file among them.

    Raises:
        StateError: there are none.
    """
    location = os.environ.get(LOCATION_ENV)
    if location is None:
        raise StateError(f"this is not a container of YARN: {LOCATION_ENV} is not set")
    try:
        with contextlib.suppress(PermissionError):
            # The DefaultContainerExecutor leaves it to the directories above to keep others out, but not its group.
            Path(location).chmod(0o600)
        found = Credentials.decode(Path(location).read_bytes())
    except OSError as e:
        raise StateError(f"{location} cannot be read: {e.strerror}") from e
    if BOOTSTRAP not in found.secrets:
        raise StateError(f"{location} has no bootstrap file")
    return found
