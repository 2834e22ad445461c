"""heronpy: a Heron-style stream processing engine in Python."""

__version__ = "0.1.0"
