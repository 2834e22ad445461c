"""Generators for examples and tests."""

from heronpy.connectors.mock.arraylooper import ArrayLooper
from heronpy.connectors.mock.randomint import RandomIntGenerator

__all__ = ["ArrayLooper", "RandomIntGenerator"]
