"""Which running topology a command means."""

from heronpy.cli._target import resolve

__all__ = ["resolve"]
