"""Nexmark: queries about an auction site, as topologies and streamlets, whose answers are compared with plain Python.

Queries 0 to 8 and 11 (Tucker et al., NEXMark, 2002; 0, 8 and 11 as Apache Beam and Flink have them). The events are
made once by a seed and read from files; `make bench-nexmark`. What runs them in real processes is in `running`: tasks
import this package.
"""

from heronpy.bench.nexmark._answers import Answer, answer, collected
from heronpy.bench.nexmark._events import events, written
from heronpy.bench.nexmark._queries import QUERIES, Options, topology

__all__ = [
    "QUERIES",
    "Answer",
    "Options",
    "answer",
    "collected",
    "events",
    "topology",
    "written",
]
