"""Streams as functions of streams: the functional API, import-compatible with Apache Heron's.

    builder = Builder()
    builder.new_source(TextFile("*.txt")).flat_map(str.split).map(lambda word: (word, 1)).to_store("counts", Sum())
    Runner().run("WordCount", Config(), builder)

A program is defined once. `heron submit` runs it as a topology, `heron pipeline run` as a Spark job.
"""

from heronpy.streamlet._hyperloglog import HyperLogLog
from heronpy.streamlet.builder import Builder
from heronpy.streamlet.config import Config
from heronpy.streamlet.context import Context
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.monoid import Count, Max, Mean, Min, Monoid, MonoidOf, SetUnion, Sum, TopK
from heronpy.streamlet.resources import Resources
from heronpy.streamlet.runner import Runner
from heronpy.streamlet.streamlet import SplitStreamlet, Streamlet
from heronpy.streamlet.transformoperator import TransformOperator
from heronpy.streamlet.window import Window
from heronpy.streamlet.windowconfig import WindowConfig
from heronpy.windows import AfterCount, AfterProcessingTime, AfterWatermark

__all__ = [
    "AfterCount",
    "AfterProcessingTime",
    "AfterWatermark",
    "Builder",
    "Config",
    "Context",
    "Count",
    "Generator",
    "HyperLogLog",
    "KeyedWindow",
    "Max",
    "Mean",
    "Min",
    "Monoid",
    "MonoidOf",
    "Resources",
    "Runner",
    "SetUnion",
    "SplitStreamlet",
    "Streamlet",
    "Sum",
    "TopK",
    "TransformOperator",
    "Window",
    "WindowConfig",
]
