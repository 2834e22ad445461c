"""Random numbers for ever."""

from __future__ import annotations

import random
import time

from heronpy.errors import TopologyError
from heronpy.streamlet.generator import Generator


class RandomIntGenerator(Generator):
    """Random integers between two bounds, which are included."""

    def __init__(self, min_int: int, max_int: int, sleep: float | None = None) -> None:
        """Take the bounds.

        Args:
            min_int: the least.
            max_int: the greatest.
            sleep: seconds to wait before each number.

        Raises:
            TopologyError: there is no number between them.
        """
        super().__init__()
        if min_int > max_int:
            raise TopologyError(f"RandomIntGenerator: there is no integer from {min_int} to {max_int}")
        self._min = min_int
        self._max = max_int
        self._sleep_s = sleep

    def get(self) -> int:
        if self._sleep_s is not None:
            time.sleep(self._sleep_s)
        return random.randint(self._min, self._max)
