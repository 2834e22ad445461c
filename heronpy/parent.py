"""A process ends with the one that started it. A leaf: there are processes that need nothing else of the engine."""

from __future__ import annotations

import ctypes
import os
import signal

PARENT_ENV = "HERON_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it ends, however that happens.

    The parent passes its pid in HERON_PARENT_PID: it may have died before this call, and then no signal would come.
    """
    expected = os.environ.get(PARENT_ENV)
    if not expected:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(expected):
        os._exit(1)
