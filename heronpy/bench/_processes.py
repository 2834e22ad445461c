"""The processes of a topology: what each is, the CPU time it has used, the memory it has needed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from heronpy.bench._rtac import EVENTS
from heronpy.bench._topology import SPOUT
from heronpy.errors import UnavailableError

KINDS = ("spout", "bolt", "stmgr", "ckptmgr", "other")
"""`ckptmgr` only effectively once. `other`: executors, Topology Master, Metrics Managers, scheduler service."""


def of_topology(topology_id: str) -> dict[int, str]:
    """Pid and kind of every process of a topology."""
    from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, find_by_environment

    found = find_by_environment({TOPOLOGY_ENV: topology_id})
    return {process.pid: _kind(env.get(PROCESS_ENV, "")) for process, env in found}


def _kind(name: str) -> str:
    """The kind of a process by its name in the topology: `container_<n>_<component>_<task>`, `stmgr-<n>`, …"""
    if name.startswith(("stmgr-", "ckptmgr-")):
        return name.partition("-")[0]
    instance = re.fullmatch(r"container_\d+_(.*)_\d+", name)
    if instance is None:
        return "other"
    return "spout" if instance[1] in (SPOUT, EVENTS) else "bolt"


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """CPU time, user and system, that each process has used since it started.

    Raises:
        UnavailableError: one of them has ended.
    """
    used = {}
    for pid in pids:
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.Error as e:
            raise UnavailableError(f"process {pid} ended while it was measured") from e
        used[pid] = times.user + times.system
    return used


def cpu_by_kind(kinds: Mapping[int, str], before: Mapping[int, float], after: Mapping[int, float]) -> dict[str, float]:
    """CPU seconds that were used between two readings, by kind of process."""
    return {kind: sum(after[pid] - before[pid] for pid, k in kinds.items() if k == kind) for kind in _present(kinds)}


def rss_peak_mb(kinds: Mapping[int, str]) -> dict[str, float]:
    """The largest resident memory (MB) that a process of each kind ever had."""
    return {
        kind: round(max((_rss_peak_bytes(pid) for pid, k in kinds.items() if k == kind), default=0) / 1e6, 1)
        for kind in _present(kinds)
    }


def _present(kinds: Mapping[int, str]) -> list[str]:
    return [kind for kind in KINDS if kind != "ckptmgr" or kind in kinds.values()]


def _rss_peak_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has ended
    with contextlib.suppress(psutil.Error):  # without /proc: what it has now
        return int(psutil.Process(pid).memory_info().rss)
    return 0
