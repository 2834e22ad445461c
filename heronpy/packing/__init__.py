"""Packing: which instances share a container, and what each may use.

A packing algorithm is pure: it reads a logical plan and returns a packing plan.
"""

from heronpy.packing._algorithm import Packing
from heronpy.packing._first_fit import FirstFitDecreasingPacking
from heronpy.packing._resource_compliant import ResourceCompliantRRPacking
from heronpy.packing._resources import (
    INSTANCE_CPU,
    INSTANCE_DISK_BYTES,
    INSTANCE_RAM_BYTES,
    INSTANCE_RAM_BYTES_MIN,
    format_bytes,
)
from heronpy.packing._round_robin import RoundRobinPacking

__all__ = [
    "INSTANCE_CPU",
    "INSTANCE_DISK_BYTES",
    "INSTANCE_RAM_BYTES",
    "INSTANCE_RAM_BYTES_MIN",
    "FirstFitDecreasingPacking",
    "Packing",
    "ResourceCompliantRRPacking",
    "RoundRobinPacking",
    "format_bytes",
]
