"""For your tests: real topologies on this machine, and waiting without sleeping."""

from heronpy.testing._eventually import eventually, eventually_sync

__all__ = ["eventually", "eventually_sync"]
