"""Bolts: components that take tuples in."""

from heronpy.api.bolt.base_bolt import BaseBolt
from heronpy.api.bolt.bolt import BasicBolt, Bolt
from heronpy.api.bolt.window_bolt import SlidingWindowBolt, TumblingWindowBolt, WindowContext

__all__ = ["BaseBolt", "BasicBolt", "Bolt", "SlidingWindowBolt", "TumblingWindowBolt", "WindowContext"]
