"""Spouts: components that bring tuples into a topology."""

from heronpy.api.spout.base_spout import BaseSpout
from heronpy.api.spout.spout import Spout

__all__ = ["BaseSpout", "Spout"]
