"""Where random ids come from: those of roots and of tuples in their trees, which all of a topology must never share."""

import os
from typing import Final

import numpy as np

generator: Final = np.random.SFC64()  # the fastest of numpy's; ids must be unlikely to collide, not hard to guess


def _seed() -> None:
    generator.state = np.random.SFC64().state


os.register_at_fork(after_in_child=_seed)  # an instance may be the fork of a process that others are forks of, too
