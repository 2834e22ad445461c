"""Elements made by code."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

from heronpy.streamlet.context import Context


class Generator(ABC):
    """A source that is asked for one element at a time. It has no memory: what fails is replayed, what dies is gone."""

    logger = logging.getLogger("heronpy.generator")

    def setup(self, context: Context) -> None:
        """Called once in every task, before the first `get`."""

    @abstractmethod
    def get(self) -> Any:
        """The next element; None if there is none now."""
