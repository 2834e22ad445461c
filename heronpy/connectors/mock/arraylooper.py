"""The same elements for ever."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from heronpy.errors import TopologyError
from heronpy.streamlet.context import Context
from heronpy.streamlet.generator import Generator


class ArrayLooper(Generator):
    """The elements of an iterable, over and over."""

    def __init__(self, user_iterable: Iterable[Any], sleep: float | None = None) -> None:
        """Take the elements.

        Args:
            user_iterable: the elements; read to its end here.
            sleep: seconds to wait before each element.

        Raises:
            TopologyError: not iterable, or empty.
        """
        super().__init__()
        try:
            self._elements = list(user_iterable)
        except TypeError:
            raise TopologyError(f"ArrayLooper takes an iterable, not {user_iterable!r}") from None
        if not self._elements:
            raise TopologyError("ArrayLooper has nothing to loop: its iterable is empty")
        self._sleep_s = sleep
        self._endless: Iterator[Any] | None = None

    def setup(self, context: Context) -> None:
        self._endless = itertools.cycle(self._elements)

    def get(self) -> Any:
        if self._sleep_s is not None:
            time.sleep(self._sleep_s)
        if self._endless is None:
            self._endless = itertools.cycle(self._elements)
        return next(self._endless)
