"""Which instances of a container are limited, and how: by a cgroup, or by looking at them."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heronpy.config import MIB
from heronpy.errors import UnavailableError
from heronpy.limits._cgroups import Cgroups, Limits
from heronpy.packing import format_bytes
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch

log = logging.getLogger(__name__)

DATA_SLACK_BYTES = 512 * MIB
"""Without cgroups an instance may reserve so much more than its RAM: stacks of threads, what allocators keep."""
_PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class Overrun:
    """An instance that took more RAM than it has."""

    used_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return f"killed: used {format_bytes(self.used_bytes)} of its {format_bytes(self.limit_bytes)}"


class Limiter:
    """Limits the instances of one container, as `heron.executor.limits` says.

    Without cgroups the RAM of an instance is checked when `overruns` is called: what its children take, and what is
    taken between two checks beyond `DATA_SLACK_BYTES` of it (RLIMIT_DATA: there allocations fail), is not seen; CPU is
    not limited.
    """

    def __init__(self, launch: Launch, container: int) -> None:
        self._config = launch.config.executor
        self._directory = launch.container_dir(container)
        self._identity = f"{launch.topology_id} {launch.dir}"
        self._container = container
        self.limits: dict[str, Limits] = {}
        """Of the instances that have any; others are free."""
        self._running: dict[str, tuple[int, Limits]] = {}
        """Pid and limits of each limited instance that runs: a newer plan may have others, or not have it."""
        self._used: dict[str, Overrun] = {}
        self._cgroups: Cgroups | None = None
        self._opened = False

    def open(self) -> None:
        """Make cgroups, if they are needed. Before anything is started: the executor must be alone in its own.

        Raises:
            UnavailableError: there must be cgroups (`heron.executor.limits: cgroup`), and none can be made.
        """
        if self._config.limits == "cgroup" or self.limits:
            self._open()

    def follow(self, plan: PackingPlan) -> None:
        """Take over what a plan gives the container's instances; it holds from their next start on."""
        packed = plan.container(self._container)
        everything = self._config.limits in ("cgroup", "rlimit")
        self.limits = {}
        for i in packed.instances if packed is not None and self._config.limits != "off" else ():
            if everything or i.ram_given:
                cpu = i.resources.cpu if everything or i.cpu_given else 0.0
                self.limits[i.instance_id(self._container)] = Limits(i.resources.ram_bytes, cpu)

    def prepare(self, id: str) -> None:
        """To be called before a process is started.

        Raises:
            OSError: its group cannot be made.
        """
        self._used.pop(id, None)
        if id not in self.limits:
            return
        if self._cgroups is not None:
            self._cgroups.make(id, self.limits[id])

    def started(self, id: str, pid: int) -> None:
        """To be called as soon as it runs. Raises OSError: it cannot be limited; ProcessLookupError: it is gone."""
        if id not in self.limits:
            return
        self._running[id] = pid, self.limits[id]
        if self._cgroups is not None:
            self._cgroups.add(id, pid)
        elif ram := self.limits[id].ram_bytes:
            bound = ram + DATA_SLACK_BYTES
            resource.prlimit(pid, resource.RLIMIT_DATA, (bound, bound))

    def overruns(self) -> Iterator[tuple[str, int, Overrun]]:
        """Instances that are to be killed: id, pid and why. With cgroups, those of which a child was killed."""
        for id, (pid, limits) in self._running.items():
            if (found := self._overrun(id, pid, limits)) is not None:
                self._used[id] = found
                yield id, pid, found

    def ended(self, id: str) -> Overrun | None:
        """To be called when an instance is dead: whether it was its RAM. Its group goes, with what is left in it."""
        pid, limits = self._running.pop(id, (0, Limits()))
        found = self._used.pop(id, None)
        if self._cgroups is not None and pid:
            found = found or self._overrun(id, pid, limits)
            self._cgroups.remove(id)
        return found

    def close(self) -> None:
        """Remove all groups, and kill what is left in them."""
        if self._cgroups is not None:
            self._cgroups.close()

    def _overrun(self, id: str, pid: int, limits: Limits) -> Overrun | None:
        limit = limits.ram_bytes
        if not limit:
            return None
        if self._cgroups is not None:
            if not self._cgroups.oom_kills(id):
                return None
            return Overrun(self._cgroups.peak_bytes(id) or limit, limit)
        used = _resident_bytes(pid)
        return Overrun(used, limit) if used > limit else None

    def _open(self) -> None:
        if self._opened or self._config.limits == "rlimit":
            return
        try:
            self._cgroups = Cgroups.of(self._directory, self._identity, self._container, self._config.cgroup_parent)
        except UnavailableError as e:
            if self._config.limits == "cgroup":
                raise UnavailableError(f"heron.executor.limits is cgroup, but {e}") from e
            log.warning("%s: the RAM of instances is checked once a second instead, their CPU is not limited", e)
        self._opened = True
        if self._cgroups is not None and not self._cgroups.limits_cpu:
            log.warning("no cgroup hierarchy has the cpu controller: the CPU of instances is not limited")


def _resident_bytes(pid: int) -> int:
    """The RAM of a process; 0 if it is gone."""
    try:
        return int(Path("/proc", str(pid), "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0
