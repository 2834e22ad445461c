"""What instances and containers may use, from the topology's configuration.

Keys (Heron's), all optional:

    topology.component.rammap, .cpumap, .diskmap   per component: a dict, or "component:value,component:value"
    topology.container.ram, .cpu, .disk            what one container asks for
    topology.container.ram.padding, .cpu.padding   the part of a container that is not for instances
    topology.container.padding.percentage          the same as a share; with both the larger counts
    topology.stmgr.ram, topology.metricsmgr.ram    make up the RAM padding when it is not given
    topology.container.max.ram.hint, .cpu., .disk. what no container may exceed
    topology.container.max.instances               how many instances a container may have
    topology.tmanager.ram, .cpu, .disk             container 0, which has the Topology Master (not in Heron)

Bytes are numbers or text with a unit (B, KB, MB, GB, TB, in powers of 1024).

A component without an entry gets the default, or, where a container's size is given, an equal share of what its
container has left, as in Heron. A container asks for its given size, or else for the sum of its instances and padding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.errors import TopologyError, nearest
from heronpy.plan import MASTER, Resources

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB

# Heron's defaults (1 GiB for an instance, 2 GiB and 12 GiB of disk around them) are a JVM's. A Python instance of this
# engine takes less than 100 MB before the user's code; half a GiB leaves that code plenty, and lets the topologies
# people try first (ten instances or so) fit into a laptop or the smallest machines that clusters rent out.
INSTANCE_RAM_BYTES = 512 * _MIB
INSTANCE_CPU = 1.0
INSTANCE_DISK_BYTES = 512 * _MIB
STMGR_RAM_BYTES = 384 * _MIB
METRICSMGR_RAM_BYTES = 128 * _MIB
PADDING_CPU = 1.0
PADDING_DISK_BYTES = 1 * _GIB
INSTANCE_RAM_BYTES_MIN = 64 * _MIB
"""No instance starts in less. Catches `512` where 512 MB were meant."""

INSTANCES_MAX_KEY = "topology.container.max.instances"

BYTES_MAX = 1 << 53
_UNITS = {"": 1, "B": 1, "K": _KIB, "M": _MIB, "G": _GIB, "T": 1024 * _GIB}
_BYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?B)?\s*", re.IGNORECASE)


def parse_bytes(key: str, raw: Any) -> int:
    """A number of bytes from a number or from text like `512MB`.

    Raises:
        TopologyError: it is none, or negative, or more than any machine has.
    """
    number = raw
    if isinstance(raw, str) and (match := _BYTES.fullmatch(raw)):
        number = float(match[1]) * _UNITS[match[2].upper()]
    if isinstance(number, int | float) and not isinstance(number, bool):
        if 0 <= number <= BYTES_MAX:
            return int(number)
        if number > BYTES_MAX:
            raise TopologyError(f"{key}: {str(raw)[:40]} is more bytes than any machine has")
    raise TopologyError(f"{key}: {raw!r} is not a number of bytes; write for example 536870912 or '512MB'")


def parse_cores(key: str, raw: Any) -> float:
    """A number of cores, fractions allowed. Raises TopologyError if it is none, or negative."""
    try:
        cores = math.nan if isinstance(raw, bool) else float(raw)
    except (TypeError, ValueError, OverflowError):
        cores = math.nan
    if not math.isfinite(cores) or cores < 0:
        raise TopologyError(f"{key}: {raw!r} is not a number of cores; write for example 0.5")
    return cores


def format_bytes(count: float) -> str:
    """For messages: in the largest unit that leaves at least 1."""
    for unit, size in (("GB", _GIB), ("MB", _MIB), ("KB", _KIB)):
        if abs(count) >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:.0f} bytes"


def format_cores(count: float) -> str:
    return f"{count:.4g} cores"


def _parse_map(
    config: Mapping[str, Any], key: str, components: Sequence[str], parse: Callable[[str, Any], float]
) -> dict[str, float]:
    raw = config.get(key)
    if raw is None or raw == "":
        return {}
    if isinstance(raw, str):
        pairs = []
        for entry in filter(str.strip, raw.split(",")):
            name, colon, value = entry.rpartition(":")
            if not colon:
                raise TopologyError(f"{key}: {entry.strip()!r} should be component:value")
            pairs.append((name.strip(), value))
    elif isinstance(raw, Mapping):
        pairs = list(raw.items())
    else:
        raise TopologyError(f"{key} must be a dict or text like 'component:value,…', not {raw!r}")
    parsed: dict[str, float] = {}
    for name, value in pairs:
        if name not in components:
            raise TopologyError(f"{key} names the unknown component {name!r}{nearest(str(name), components)}")
        if name in parsed:
            raise TopologyError(f"{key} names the component {name!r} twice")
        parsed[name] = parse(f"{key} of {name!r}", value)
    return parsed


@dataclass(frozen=True, slots=True)
class Dimension:
    """RAM, CPU or disk: what the configuration says of it."""

    what: str
    container_key: str
    default: float
    """Of an instance of a component that is not in `by_component`, where no container size is given."""
    by_component: Mapping[str, float]
    requested: float | None
    """The size of a container, if given."""
    padding: float | None
    """If given, or following from what is given."""
    padding_percent: float | None
    padding_default: float
    maximum: float | None
    """What a container must not exceed, if given."""
    maximum_key: str
    show: Callable[[float], str]

    def padding_of(self, instances: float) -> float:
        """How much of a container is not for instances, which take `instances` in all (where that is known)."""
        if self.padding_percent is None:
            return self.padding_default if self.padding is None else self.padding
        base = instances if self.requested is None else self.requested
        return max(self.padding or 0.0, base * self.padding_percent / 100)

    def divide(self, container: int, components: Sequence[str]) -> tuple[list[float], float]:
        """The share of each instance of a container, and the container's size."""
        known = sum(self.by_component.get(c, 0.0) for c in components)
        open_ = sum(c not in self.by_component for c in components)
        share = self.default
        if self.requested is None:
            used = known + open_ * share
            return [self.by_component.get(c, share) for c in components], used + self.padding_of(used)
        left = self.requested - self.padding_of(known) - known
        if left < 0 or (open_ and left <= 0):
            raise TopologyError(
                f"{self.container_key} = {self.show(self.requested)} is too small for container {container}: "
                f"its {len(components)} instances need {self.show(known)} by themselves"
                f"{f' without the {open_} whose {self.what} is not given' if open_ else ''}, "
                f"and {self.show(self.padding_of(known))} are padding"
            )
        if open_:
            share = left / open_
        return [self.by_component.get(c, share) for c in components], self.requested


class ResourceModel:
    """What the instances of a container may use and what the container asks for. Reads the configuration once."""

    def __init__(self, config: Mapping[str, Any], components: Sequence[str]) -> None:
        """Read the topology's configuration.

        Raises:
            TopologyError: a value that is not an amount, or an unknown component.
        """

        def given(key: str, parse: Callable[[str, Any], float]) -> float | None:
            return None if config.get(key) is None else parse(key, config[key])

        percent = given("topology.container.padding.percentage", _parse_percent)

        def dimension(
            what: str, name: str, default: float, padding_default: float, parse: Callable[[str, Any], float]
        ) -> Dimension:
            key, maximum_key = f"topology.container.{name}", f"topology.container.max.{name}.hint"
            return Dimension(
                what,
                key,
                default,
                _parse_map(config, f"topology.component.{name}map", components, parse),
                given(key, parse),
                given(f"{key}.padding", parse) if name != "disk" else None,
                percent,
                padding_default,
                given(maximum_key, parse),
                maximum_key,
                format_cores if parse is parse_cores else format_bytes,
            )

        stmgr = given("topology.stmgr.ram", parse_bytes)
        metricsmgr = given("topology.metricsmgr.ram", parse_bytes)
        daemons = (STMGR_RAM_BYTES if stmgr is None else stmgr) + (
            METRICSMGR_RAM_BYTES if metricsmgr is None else metricsmgr
        )
        self.ram = dimension("RAM", "ram", INSTANCE_RAM_BYTES, daemons, parse_bytes)
        self.cpu = dimension("CPU", "cpu", INSTANCE_CPU, PADDING_CPU, parse_cores)
        self.disk = dimension("disk", "disk", INSTANCE_DISK_BYTES, PADDING_DISK_BYTES, parse_bytes)
        self.instances_max = _parse_count(config)
        """How many a container may have, if that is given."""
        cpu, ram, disk = (
            given(f"topology.tmanager.{name}", parse)
            for name, parse in (("cpu", parse_cores), ("ram", parse_bytes), ("disk", parse_bytes))
        )
        self.master = Resources(
            MASTER.cpu if cpu is None else cpu,
            MASTER.ram_bytes if ram is None else int(ram),
            MASTER.disk_bytes if disk is None else int(disk),
        )
        """What container 0 asks for."""
        for name, amount in self.ram.by_component.items():
            if amount < INSTANCE_RAM_BYTES_MIN:
                raise TopologyError(
                    f"topology.component.rammap gives {name!r} {format_bytes(amount)}, less than the "
                    f"{format_bytes(INSTANCE_RAM_BYTES_MIN)} an instance needs; amounts are bytes unless a unit "
                    "follows, as in '512MB'"
                )

    def divide(self, container: int, components: Sequence[str]) -> tuple[list[Resources], Resources]:
        """The resources of each instance of a container, given their components, and of the container.

        Raises:
            TopologyError: they do not fit.
        """
        if self.instances_max is not None and len(components) > self.instances_max:
            raise TopologyError(
                f"{INSTANCES_MAX_KEY} = {self.instances_max} is too small for container {container}: it has "
                f"{len(components)} instances; set topology.stmgrs higher"
            )
        rams, ram = self.ram.divide(container, components)
        cpus, cpu = self.cpu.divide(container, components)
        disks, disk = self.disk.divide(container, components)
        if min(rams) < INSTANCE_RAM_BYTES_MIN:
            assert self.ram.requested is not None  # only a share of what is left can be that small
            raise TopologyError(
                f"topology.container.ram = {format_bytes(self.ram.requested)} is too small for container {container}: "
                f"it leaves {format_bytes(min(rams))} to each of its instances without an entry in "
                f"topology.component.rammap, and an instance needs {format_bytes(INSTANCE_RAM_BYTES_MIN)}"
            )
        for dimension, asked in ((self.ram, ram), (self.cpu, cpu), (self.disk, disk)):
            if dimension.maximum is not None and exceeds(asked, dimension.maximum):
                raise TopologyError(
                    f"{dimension.maximum_key} = {dimension.show(dimension.maximum)} is too small for container "
                    f"{container}: its {len(components)} instances and the padding are {dimension.show(asked)}; set "
                    "topology.stmgrs higher"
                )
        # Rounded down and up, so that the instances never add up to more than the container.
        return (
            [Resources(c, int(r), int(d)) for c, r, d in zip(cpus, rams, disks, strict=True)],
            Resources(max(cpu, sum(cpus)), math.ceil(ram), math.ceil(disk)),
        )


def exceeds(amount: float, limit: float) -> bool:
    """Whether it is more, by more than the order of a sum of floats can make."""
    return amount > limit * (1 + 1e-9)


def _parse_count(config: Mapping[str, Any]) -> int | None:
    raw = config.get(INSTANCES_MAX_KEY)
    if raw is None:
        return None
    try:
        count = int(raw)
    except (TypeError, ValueError):
        count = 0
    if count < 1 or isinstance(raw, bool):
        raise TopologyError(f"{INSTANCES_MAX_KEY} must be a number of instances from 1, not {raw!r}")
    return count


def _parse_percent(key: str, raw: Any) -> float:
    try:
        percent = math.nan if isinstance(raw, bool) else float(raw)
    except (TypeError, ValueError):
        percent = math.nan
    if not 0 <= percent < 100:
        raise TopologyError(f"{key}: {raw!r} is not a percentage from 0 to below 100")
    return percent
