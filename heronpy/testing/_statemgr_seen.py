"""What the kit of state managers waits with."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

from heronpy.errors import AlreadyExistsError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing._eventually import eventually_sync

SESSION_TIMEOUT_S = 8.0
"""Of the processes that the kit kills and stops; an ephemeral node of theirs is gone after about that long at most."""
OWN_SESSION_TIMEOUT_S = 40.0
"""Of its own sessions: they are not to expire because this process is late."""
WITHIN_S = 120.0
"""How long the kit waits for something that must happen."""


Open = Callable[[], StateManager]


class Seen:
    """A watch callback that keeps what it is given."""

    def __init__(self) -> None:
        self._values: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def __call__(self, value: bytes | None) -> None:
        self._values.put(value)

    def next(self, within_s: float = WITHIN_S) -> bytes | None:
        """The next value; raises AssertionError if there is none in time."""
        try:
            return self._values.get(timeout=within_s)
        except queue.Empty:
            raise AssertionError(f"the watch said nothing for {within_s:g} s") from None

    def until(self, value: bytes | None, within_s: float = WITHIN_S) -> list[bytes | None]:
        """All values up to `value`."""
        values = []
        deadline_s = time.monotonic() + within_s
        while True:
            values.append(self.next(max(0.01, deadline_s - time.monotonic())))
            if values[-1] == value:
                return values

    def nothing(self) -> bool:
        return self._values.empty()


def opened(spec: StatemgrSpec) -> StateManager:
    """A state manager that is patient: on a busy machine an answer may take longer than a user would wait for it."""
    return open_statemgr(spec, session_timeout_s=OWN_SESSION_TIMEOUT_S, call_timeout_s=WITHIN_S)


def take_over(sm: StateManager, name: str, value: bytes) -> None:
    """Create a Topology Master's node as soon as an owner that was stopped has lost it.

    Not when a watch says that it has: on a busy machine its session may have expired before, and been made again.
    """

    def created() -> None:
        try:
            sm.create(Kind.TMASTERS, name, value, ephemeral=True)
        except AlreadyExistsError as e:
            raise AssertionError(str(e)) from e

    eventually_sync(created, within_s=WITHIN_S)
