"""How much a process holds, and whether that is too much: then something of it goes to disk, see `spill`.

The bound is Spark's own, `spark.python.worker.memory`: what a Python worker may use before it writes to disk. It is
compared with the resident memory of the process, because it is unknown what a user's accumulators weigh: a sketch may
take 16 KB, a set anything.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import re
from collections.abc import Callable

import psutil

from heronpy.errors import ConfigError

MIB = 1024 * 1024
LIMIT_BYTES = 512 * MIB
LIMIT_KEY = "spark.python.worker.memory"
_UNITS = {"": MIB, "k": 1024, "m": MIB, "g": 1024 * MIB, "t": 1024 * 1024 * MIB}
_HEADROOM = 16
"""A task whose process is at the limit without its doing may hold a sixteenth of it all the same."""


def limit_of(text: str) -> int:
    """Bytes, for what Spark takes as a size: `512m`, `1g`; a bare number is MiB. Without one the default.

    Raises:
        ConfigError: it is none.
    """
    if not text:
        return LIMIT_BYTES
    match = re.fullmatch(r"\s*(0*[1-9]\d{0,15})\s*([kmgt]?)b?\s*", text.lower())
    if match is None:
        raise ConfigError(f"{LIMIT_KEY} must be a size, as 512m or 1g, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]


class Memory:
    """What the process of a task may use."""

    def __init__(self, limit_bytes: int) -> None:
        """Begin a task."""
        self._process = psutil.Process()
        self._limit = limit_bytes
        self._bound = max(limit_bytes, self._used() + limit_bytes // _HEADROOM)

    def is_full(self) -> bool:
        """Whether something must leave memory; costs microseconds: ask once in some thousand elements."""
        return self._used() > self._bound

    def emptied(self) -> None:
        """What could leave has left."""
        gc.collect(0)
        _give_back()
        # What the allocator keeps is used again first; without room above that, every chunk would be written.
        self._bound = max(self._limit, self._used() + self._limit // _HEADROOM)

    def _used(self) -> int:
        return int(self._process.memory_info().rss)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # no glibc
        return None


def _give_back() -> None:
    """Give memory that is free in the C library back to the system: else it counts as used."""
    trim = _trim()
    if trim is not None:
        trim(0)
