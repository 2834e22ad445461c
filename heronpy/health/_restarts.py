"""How often each process was restarted, as the executors' pid files have it: those outlive a Topology Master."""

from __future__ import annotations

from collections.abc import Container

RESTART_WINDOW_S = 600
"""Restarts count for this long."""
RESTARTS_METRIC = "__restarts/"
"""Gauge of the executor of each container; the id of the process follows. A total: restarts since the process was
started on purpose, by a submission or `heron restart`."""
RECENT_RESTARTS_METRIC = "__recent-restarts/"
"""The same of the last RESTART_WINDOW_S."""

OVER_RAM_METRIC = "__over-ram/"
"""How many bytes of RAM a process used that was killed for that the last time that it died; 0: it died of
something else. The id follows."""


class RestartLog:
    """Gauges of executors in, restarts by process out. Pure: the caller brings the time."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        """By process, as reported last."""
        self._recent: dict[str, tuple[int, float]] = {}
        """By process: restarts within the window, and when that was reported."""
        self._over_ram: dict[str, int] = {}

    def observe(self, metric: str, value: float, now_s: float) -> None:
        """Take in a gauge of an executor; one that is not about restarts is ignored."""
        if metric.startswith(RESTARTS_METRIC):
            self.totals[metric.removeprefix(RESTARTS_METRIC)] = int(value)
        elif metric.startswith(RECENT_RESTARTS_METRIC):
            self._recent[metric.removeprefix(RECENT_RESTARTS_METRIC)] = int(value), now_s
        elif metric.startswith(OVER_RAM_METRIC):
            self._over_ram[metric.removeprefix(OVER_RAM_METRIC)] = int(value)

    def recent(self, now_s: float) -> dict[str, int]:
        """Restarts within the window by process; only processes that have any, and whose container reports."""
        return {p: n for p, (n, at_s) in self._recent.items() if n and now_s - at_s <= RESTART_WINDOW_S}

    def over_ram(self, now_s: float) -> dict[str, int]:
        """With how many bytes each process was killed that last died of that, of those with restarts in the window."""
        recent = self.recent(now_s)
        return {p: used for p, used in self._over_ram.items() if used and p in recent}

    def keep(self, processes: Container[str]) -> None:
        """Forget all processes but these."""
        for known in (self.totals, self._recent, self._over_ram):
            for process in [p for p in known if p not in processes]:
                del known[process]
