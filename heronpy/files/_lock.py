"""The lock of an open file, for which is not waited for ever: who holds it may be stopped."""

from __future__ import annotations

import fcntl
import time

_POLL_S = 0.002


def lock_within(fd: int, within_s: float) -> bool:
    """Take the exclusive lock (flock) of an open file. Blocks; False: another one has held it for `within_s` seconds.

    It is released with the file's last descriptor, those of child processes included.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
        else:
            return True
        time.sleep(_POLL_S)
