"""Sessions of keys that come once: whether closed ones leave anything behind, in memory, in files, or for a restart."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from heronpy.api import Bolt, Grouping, KeyedWindowBolt, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.bench._probe import Probe, Prober, prober
from heronpy.bench.rows.pauses import POLL_S
from heronpy.config import MIB
from heronpy.errors import UnavailableError
from heronpy.testing import LocalCluster, TopologyHandle
from heronpy.windows import Pane, Reduce, Session

DIRECTORY: Final = "bench.directory"
RATE: Final = "bench.rate"
EARLY: Final = 0.1
"""The first figures are taken when this part of the keys has come."""
GROWTH_MAX: Final = 1.05
WITHIN_S: Final = 600.0
"""Without any new session: something is wrong."""
SETTLED_WITHIN_S: Final = 30.0
_ANSWER_S = 0.5


class OneShots(Spout):
    """Emits each number once, at a given rate; its event time is that of its turn."""

    outputs = ["key", "at"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._rate = float(config[RATE])
        self._next = context.task_state("next", default=0)
        self._began_s: float | None = None

    def activate(self) -> None:
        self._began_s = None  # a pause is not made up for

    def next_tuple(self) -> None:
        number, now_s = self._next.value, time.monotonic()
        if self._began_s is None:
            self._began_s = now_s - number / self._rate
        if number <= (now_s - self._began_s) * self._rate:
            self._next.value = number + 1
            self.emit([number, int(number * 1000 / self._rate)])


class Visits(KeyedWindowBolt):
    """A session for each key."""

    outputs = ["key"]  # noqa: RUF012
    fold = Reduce(max)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        labels = {"epoch": context.restore_epoch}
        self._came = 0
        self._probe = Probe(Path(config[DIRECTORY]), "visits", lambda: {**labels, "count": self._came})

    def value(self, tup: Tuple) -> Any:
        self._came += 1
        return tup.values[0]

    def on_pane(self, pane: Pane) -> None:
        self.emit([pane.value])

    def cleanup(self) -> None:
        self._probe.close()


class Closed(Bolt):
    """The number of sessions, and the sum of their keys."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._closed = context.task_state("closed", default=(0, 0))
        self._probe = Probe(
            Path(config[DIRECTORY]), "closed", lambda: dict(zip(("count", "sum"), self._closed.value, strict=True))
        )

    def process(self, tup: Tuple) -> None:
        count, total = self._closed.value
        self._closed.value = count + 1, total + tup.values[0]
        self.ack(tup)

    def cleanup(self) -> None:
        self._probe.close()


def topology(directory: Path, *, rate: float, gap_ms: int, interval_s: float) -> TopologyBuilder:
    """`source` → `visits` → `closed`, one task each."""
    config = {DIRECTORY: str(directory), RATE: rate}
    builder = TopologyBuilder("bench-sessions")
    source = builder.add_spout("source", OneShots, 1, config=config)
    bolt = Visits.with_windows(Session(gap_ms)).with_timestamp_field("at")
    visits = builder.add_bolt("visits", bolt, 1, {source: Grouping.fields("key")}, config=config)
    builder.add_bolt("closed", Closed, 1, {visits: Grouping.SHUFFLE}, config=config)
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": interval_s,
        }
    )
    return builder


@dataclass(frozen=True, slots=True)
class Figures:
    """At one moment."""

    keys: int
    """Sessions that were closed by then."""
    rss_mb: float
    files_mb: float
    restart_s: float
    """Of several kills, in the middle."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """What was measured."""

    early: Figures
    late: Figures
    wrong: str
    """What is wrong with the sessions; empty: each key had one."""


class _Running:
    """The topology, and what its probes say."""

    def __init__(self, handle: TopologyHandle, probes: Prober) -> None:
        self._handle, self._probes = handle, probes

    def ask(self, name: str) -> dict[str, Any]:
        """Empty: it does not answer now."""
        with contextlib.suppress(OSError):
            return self._probes.counters(name, _ANSWER_S)
        return {}

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait for a condition, as long as there is something new."""
        seen: dict[str, Any] = {}
        give_up_s = time.monotonic() + WITHIN_S
        while not done():
            if (now := self.ask("closed")) != seen:
                seen, give_up_s = now, time.monotonic() + WITHIN_S
            if time.monotonic() > give_up_s:
                raise UnavailableError(f"no session is closed any more: {seen}")
            time.sleep(POLL_S)

    def closed(self) -> int:
        """How many sessions are closed."""
        return int(self.ask("closed").get("count", 0))

    def wait_closed(self, count: int) -> None:
        """Wait for so many closed sessions."""
        self.wait(lambda: self.closed() >= count)

    def wrong(self) -> str:
        """What is wrong with the sessions that are closed when nothing comes any more: those of the first keys."""
        self._handle.deactivate()
        give_up_s = time.monotonic() + SETTLED_WITHIN_S
        while True:
            count, total = itemgetter("count", "sum")({"count": 0, "sum": 0, **self.ask("closed")})
            if count and total == count * (count - 1) // 2:
                return ""
            if time.monotonic() > give_up_s:
                return f"{count:,} sessions are closed, and the sum of their keys is {total:,}"
            time.sleep(POLL_S)

    def figures(self, seconds: float, kills: int) -> Figures:
        keys = self.closed()
        rss: list[float] = []
        files: list[float] = []
        until_s = time.monotonic() + seconds
        while not rss or time.monotonic() < until_s:
            statm = Path(f"/proc/{self._pid()}/statm").read_text()
            rss.append(int(statm.split()[1]) * os.sysconf("SC_PAGESIZE") / MIB)
            files.append(_size_of(Path(self._handle.launch.checkpoints)) / MIB)
            time.sleep(POLL_S)
        return Figures(keys, max(rss), max(files), statistics.median(self._restart_s() for _ in range(kills)))

    def _restart_s(self) -> float:
        """Seconds from the death of the task that has the sessions until it takes tuples again."""
        newest = self._newest()
        before: dict[str, Any] = {}

        def ready() -> bool:
            before.update(self.ask("visits"))
            return bool(before) and self._newest() > newest

        self.wait(ready)
        os.kill(self._pid(), signal.SIGKILL)
        began_s = time.monotonic()
        while not ((now := self.ask("visits")) and now["epoch"] > before["epoch"] and now["count"]):
            if time.monotonic() > began_s + WITHIN_S:
                raise UnavailableError("the task that was killed takes no tuples")
            time.sleep(POLL_S)
        return time.monotonic() - began_s

    def _newest(self) -> int:
        return int(self._handle.status().checkpoints.newest)

    def _pid(self) -> int:
        (pid,) = (pid for name, pid in self._handle.processes().items() if "_visits_" in name)
        return pid


def measure(
    *,
    keys: int,
    rate: float,
    gap_ms: int,
    interval_s: float,
    seconds: float,
    kills: int,
    on_step: Callable[[str], None],
) -> Sessions:
    """Have so many sessions opened and closed; figures are taken early and late."""
    with (
        tempfile.TemporaryDirectory(prefix="heron-rows-") as scratch,
        prober(Path(scratch) / "p") as probes,
        LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster,
    ):
        builder = topology(probes.directory, rate=rate, gap_ms=gap_ms, interval_s=interval_s)
        running = _Running(cluster.submit(builder).wait_running(180.0), probes)
        found = []
        for closed in (int(EARLY * keys), keys):
            on_step(f"{closed:,} keys")
            running.wait_closed(closed)
            on_step(f"measuring after {closed:,} keys")
            found.append(running.figures(seconds, kills))
        on_step("comparing the sessions")
        early, late = found
        return Sessions(early, late, running.wrong())


def _size_of(directory: Path) -> int:
    """Bytes of all files; those that are removed meanwhile do not count."""
    size = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            size += path.stat().st_size
    return size
