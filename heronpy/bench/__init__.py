"""What the engine costs: the Heron paper's word count, next to two plain Python processes that do the same; or RTAC.

`run` makes one interleaved measurement (floor, engine, floor) and returns a `Report`. Machines are noisy, neighbours
and clock rates change: what can be compared between runs is `ratio_to_floor`. On the command line: `heron bench`.
"""

from heronpy.bench._report import Report
from heronpy.bench._run import RELIABILITIES, BenchConfig, Place, run

__all__ = ["RELIABILITIES", "BenchConfig", "Place", "Report", "run"]
