"""How soon one rollback follows another.

A tuple that is the reason of some is set aside in the end (`Poison`). Whatever else in user code fails may fail for
ever, and each rollback reads all state and writes to the state manager.
"""

from __future__ import annotations

_PROMPT = 3
"""So many without a commit in between are made at once."""
_DELAY_S = 1.0
"""What the next one waits for; each after it waits twice as long as the one before ..."""
_DELAY_MAX_S = 10.0
"""... up to this."""


class Pace:
    """Of rollbacks that user code asks for, and of which no tuple is the reason."""

    def __init__(self) -> None:
        self._made = 0
        """Since the last commit."""
        self._next_s = float("-inf")

    def allows(self, now_s: float) -> bool:
        """Whether the next one is made. Who asks for it asks again."""
        return now_s >= self._next_s

    def rolled_back(self, now_s: float) -> None:
        """One is made."""
        self._made += 1
        if self._made > _PROMPT:
            self._next_s = now_s + min(_DELAY_S * 2.0 ** (self._made - _PROMPT - 1), _DELAY_MAX_S)

    def committed(self) -> None:
        """A checkpoint is committed: there is progress."""
        self._made, self._next_s = 0, float("-inf")
