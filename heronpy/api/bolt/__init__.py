"""Bolts: components that take tuples in."""

from heronpy.api.bolt.base_bolt import BaseBolt
from heronpy.api.bolt.bolt import BasicBolt, Bolt
from heronpy.api.bolt.join_bolt import JoinBolt
from heronpy.api.bolt.keyed_window_bolt import KeyedWindowBolt
from heronpy.api.bolt.window_bolt import SlidingWindowBolt, TumblingWindowBolt, WindowContext
from heronpy.api.bolt.windowed_bolt import BaseWindowedBolt, TupleWindow
from heronpy.windows import Count, Duration

__all__ = [
    "BaseBolt",
    "BaseWindowedBolt",
    "BasicBolt",
    "Bolt",
    "Count",
    "Duration",
    "JoinBolt",
    "KeyedWindowBolt",
    "SlidingWindowBolt",
    "TumblingWindowBolt",
    "TupleWindow",
    "WindowContext",
]
