"""Elements made by code."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

from heronpy.streamlet.context import Context


class Generator(ABC):
    """A source that is asked for one element at a time. What fails is replayed; what dies is gone, unless it is saved.

    One whose position is in `context.get_state()`, all of it, can be read effectively once: say so with `stateful`.
    """

    stateful = False
    """Whether all that it goes on from is in `context.get_state()`. The state that it has before `get` must make it
    return the same again."""
    logger = logging.getLogger("heronpy.generator")

    def setup(self, context: Context) -> None:
        """Called once in every task, before the first `get`."""

    @abstractmethod
    def get(self) -> Any:
        """The next element; None if there is none now."""
