"""What shows that topologies came or went: the folder of execution states has changed.

A state manager follows nodes, not folders. A folder of files has a change time, any other its names. They are
looked at as often as a person would notice; there are few Trackers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable

from heronpy.errors import StateError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, StateManager

log = logging.getLogger(__name__)

_LOOK_S = 0.25


class FolderWatch:
    """Calls `changed` from a thread of its own after every change of a folder, and maybe once more."""

    def __init__(self, state: StateManager, spec: StatemgrSpec, kind: Kind, changed: Callable[[], None]) -> None:
        """Begin to watch."""
        self._changed = changed
        self._closed = threading.Event()
        self._path = os.path.join(spec.root, kind.value)
        self._state, self._kind = state, kind
        look = self._modified if spec.type == "file" else self._names
        threading.Thread(target=self._run, args=(look,), name="tracker-folder", daemon=True).start()

    def close(self) -> None:
        """Call no more."""
        self._closed.set()

    def _run(self, look: Callable[[], object]) -> None:
        seen: object = None
        while not self._closed.wait(_LOOK_S):
            # Not there yet, or not readable now: retried. The listing of topologies reports a server that is away.
            with contextlib.suppress(OSError, StateError):
                now = look()
                if now != seen and not self._closed.is_set():
                    seen = now
                    self._changed()

    def _modified(self) -> int:
        return os.stat(self._path).st_mtime_ns

    def _names(self) -> list[str]:
        return self._state.list(self._kind)
