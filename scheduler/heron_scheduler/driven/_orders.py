"""What commands and the driver of a topology write into the state manager for each other. Nothing of it is secret.

Commands write `Kind.DRIVERORDERS` under the topology's lock. The driver owns `Kind.DRIVERS`, which is ephemeral: so it
also says that there is a driver, and that there is only one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from heron_scheduler._spi import ContainerPhase, ContainerStatus
from heronpy.errors import StateError

_DAMAGES = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Order:
    """One container that is to run."""

    generation: int
    """A higher one than that of the run means: end that, and start it again."""
    cpus: int
    """The cores that it asks for."""
    ram_mb: int = 0
    """The RAM that it asks for, in MiB; 0 where the cluster does not count it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a driver is asked to run."""

    topology_id: str
    serial: int = 0
    """Grows with each change; the driver repeats it in its report once it acts by it."""
    stop: bool = False
    """End all containers, and the driver."""
    containers: Mapping[int, Order] = field(default_factory=dict)

    def changed(self, **changes: Any) -> Self:
        """The next orders."""
        return replace(self, serial=self.serial + 1, **changes)

    def encode(self) -> bytes:
        containers = {str(n): [one.generation, one.cpus, one.ram_mb] for n, one in sorted(self.containers.items())}
        values = {"topology_id": self.topology_id, "serial": self.serial, "stop": self.stop, "containers": containers}
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises StateError: it is damaged."""
        try:
            values = json.loads(data)
            containers = {int(n): Order(*map(int, one)) for n, one in values["containers"].items()}
            return cls(
                topology_id=str(values["topology_id"]),
                serial=int(values["serial"]),
                stop=bool(values["stop"]),
                containers=containers,
            )
        except _DAMAGES as e:
            raise StateError(f"the orders of a driver are damaged ({type(e).__name__})") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReport:
    """What a driver says."""

    topology_id: str
    host: str
    pid: int
    serial: int = -1
    """Of the orders by which it acts; negative: the cluster has not accepted it yet."""
    application: str = ""
    """The cluster's id of it."""
    containers: tuple[ContainerStatus, ...] = ()

    def encode(self) -> bytes:
        containers = [[one.container, one.phase.value, one.host, one.job, one.reason] for one in self.containers]
        values = {name: getattr(self, name) for name in ("topology_id", "host", "pid", "serial", "application")}
        return json.dumps({**values, "containers": containers}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises StateError: it is damaged."""
        try:
            values = json.loads(data)
            containers = tuple(
                ContainerStatus(container=n, phase=ContainerPhase(phase), host=host, job=job, reason=reason)
                for n, phase, host, job, reason in values.pop("containers")
            )
            return cls(**values, containers=containers)
        except _DAMAGES as e:
            raise StateError(f"the report of a driver is damaged ({type(e).__name__})") from None
