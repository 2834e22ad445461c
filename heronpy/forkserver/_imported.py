"""Whether what a fork server has imported is still what is installed.

After an upgrade a fork would have old modules beside those that it imports itself, which may lack what these need: it
would fail again and again, where a process that is executed is of the new version as a whole.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final, NamedTuple

LOOK_S: Final = 1.0
"""How often it is looked at, at most: at some 500 files, that takes as much as a tenth of a fork."""


class _Stat(NamedTuple):
    """What differs between two versions of a file."""

    mtime_ns: int
    size: int
    inode: int


class Imported:
    """The files of all modules of this process, as they are now."""

    def __init__(self) -> None:
        names = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        self._before = {name: _stat(name) for name in names if name}
        self._look_s = time.monotonic() + LOOK_S

    def changed(self) -> str:
        """One that is another one now, or gone; empty: none."""
        if (now_s := time.monotonic()) < self._look_s:
            return ""
        self._look_s = now_s + LOOK_S
        return next((name for name, before in self._before.items() if _stat(name) != before), "")


def _stat(name: str) -> _Stat | None:
    """None: there is no such file, as for a module in an archive."""
    try:
        found = os.stat(name)
    except OSError:
        return None
    return _Stat(found.st_mtime_ns, found.st_size, found.st_ino)
