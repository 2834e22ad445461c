"""What `watch` returns, for every state manager."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

_CANCEL_WAIT_S = 1.0


class Watch:
    """A callback that follows one node until it is cancelled.

    Values are compared, so the callback sees a value once, however often a state manager reads it (after a reconnect,
    say). What happens between two reads is not seen: A, B, A may look like A.
    """

    def __init__(self, name: str, callback: Callable[[bytes | None], None], on_cancel: Callable[[], None]) -> None:
        self.name = name
        self._callback = callback
        self._on_cancel = on_cancel
        self._cancelled = False
        self._delivered = False
        self._last: bytes | None = None
        # Reentrant, because a callback may cancel its own watch.
        self._calling = threading.RLock()

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """End it. No callback begins after this has returned; one that takes longer than a second may still run."""
        if self._cancelled:
            return
        self._cancelled = True
        if self._calling.acquire(timeout=_CANCEL_WAIT_S):
            self._calling.release()
        self._on_cancel()

    def deliver(self, value: bytes | None) -> None:
        """Call the callback unless it has had this value already. Called by one thread of the state manager."""
        with self._calling:
            if self._cancelled or (self._delivered and value == self._last):
                return
            self._delivered = True
            self._last = value
            try:
                self._callback(value)
            except Exception:
                # A bug of one caller must not blind the other watches that share this thread.
                log.exception("the callback of the watch on %s failed", self.name)
