"""Directories that go with the last thing in them, without a lock: `rmdir` spares one that is used again.

So whoever makes something in such a directory makes the directory again if it is removed at that very moment.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_ATTEMPTS_MAX = 100
"""Each is thwarted by another removal in the microseconds between two system calls; all are by what is missing."""
_PAUSE_MAX_S = 0.001
"""Random, so that two who make and remove the same do not go on in step."""


def remove_empty(directories: Iterable[Path]) -> None:
    """Remove directories, in this order, up to the first that is not empty, or cannot be removed."""
    with contextlib.suppress(OSError):
        for directory in directories:
            directory.rmdir()


def outrace_removal(make: Callable[[], T]) -> T:
    """What `make` returns; it is called again if a directory is removed that it has just made, or found.

    Raises:
        FileNotFoundError: something is missing for good.
        FileExistsError: a file is in the way, or `make` does not make what is there.
    """
    for _ in range(_ATTEMPTS_MAX - 1):
        # The latter from `mkdir(exist_ok=True)`, where what was there is gone when it looks what that is.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            return make()
        time.sleep(_PAUSE_MAX_S * random.random())
    return make()
