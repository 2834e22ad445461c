"""A Heron Instance: one process, one task. `python -m heronpy.instance --dir D --container N --instance ID`."""

from heronpy.instance._progress import ProgressMeter

__all__ = ["ProgressMeter"]
