"""A process that moves frames does not fault for their memory again and again."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMES = """
import ctypes, resource, sys
from heronpy.runtime import keep_freed_memory
if not hasattr(ctypes.CDLL(None), "mallopt"):
    print(-1)
    sys.exit()
keep_freed_memory()
def frames():
    return [b"x" * (1 << 20) for _ in range(6)]
frames()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    frames()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_memory_of_frames_is_used_again_without_faults() -> None:
    told = subprocess.run([sys.executable, "-c", FRAMES], capture_output=True, text=True, timeout=120, check=True)
    faults = int(told.stdout)
    if faults < 0:
        pytest.skip("this libc has no mallopt()")
    assert faults < 5000, "each of 300 frames of a megabyte has 256 pages"
