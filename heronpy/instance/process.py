"""The process of one task, as a service: what `python -m heronpy.instance` runs, and tests run among others."""

from heronpy.instance._instance import Instance

__all__ = ["Instance"]
