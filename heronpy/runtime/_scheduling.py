"""How the kernel divides the cores among processes that compute."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Final

_SCHED_ATTR: Final = struct.Struct("=IIQiIQQQ")
"""The kernel's sched_attr, first version: size, policy, flags, nice, priority, runtime, deadline, period."""
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""The number of the system call, for which the C library may have no function."""


def take_long_turns(slice_ms: float) -> None:
    """Have the calling thread, and those that it starts, compute for longer before others take their turn.

    Each turn begins with cold caches. Without effect on kernels before Linux 6.12, and where it is refused.

    Args:
        slice_ms: how long; 0: as long as the kernel likes, 1 to 3 ms.
    """
    call = _SCHED_SETATTR.get(platform.machine())
    if slice_ms <= 0 or call is None:
        return
    policy, nice, runtime_ns = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), int(slice_ms * 1e6)
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, policy, 0, nice, 0, runtime_ns, 0, 0)
    ctypes.CDLL(None).syscall(call, 0, attributes, 0)
