"""The user's own element-wise operation, with a setup."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from heronpy.streamlet.context import Context


class TransformOperator(ABC):
    """Emits any number of elements for each that comes in.

    What it is to remember effectively once belongs into `context.get_state()`: a restore makes a new operator.
    """

    def setup(self, context: Context) -> None:
        """Called once in every task, before the first `transform`. Keep the context: its `emit([element])` emits."""

    @abstractmethod
    def transform(self, tup: Any) -> Any:
        """Called for every element, which is `tup.values[0]`."""
