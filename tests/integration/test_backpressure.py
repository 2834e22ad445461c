"""Backpressure with real processes: a bolt that sleeps 1 ms for each tuple behind a spout without a limit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from slow_topology import SLEEP_S, slow_topology

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync, scrape

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}
KIB = 1024
SMALL = {
    "heron.streammgr.network.backpressure.highwatermark.mb": 0.5,
    "heron.streammgr.network.backpressure.lowwatermark.mb": 0.25,
    "heron.streammgr.connection.write.batch.size.mb": 1 / 16,
    "heron.instance.internal.read.queue.bytes": 128 * KIB,
    "heron.instance.tuning.expected.read.queue.bytes": 64 * KIB,
    "heron.instance.internal.write.queue.bytes": 128 * KIB,
    "heron.instance.set.data.tuple.size.bytes": 64 * KIB,
}
"""So little may wait that a second of flood is too much."""
FLOOD, SLOW = "container_1_flood_1", "container_1_slow_3"
SPENT = "__time_spent_back_pressure_by_compid/"
HELD = "__server/__time_spent_back_pressure_aggr"


@dataclass
class Flooded:
    """A topology whose slow bolt can be told to hurry."""

    topology: TopologyHandle
    released: Path

    def flood(self) -> None:
        """Flood the slow bolt; on return it causes backpressure."""
        self.released.unlink(missing_ok=True)
        self.topology.activate()
        before_ms = self.spent_ms(SLOW)
        eventually_sync(lambda: _above(self.spent_ms(SLOW), before_ms + 400))

    def release(self) -> None:
        """Have the bolt hurry, and the spout not."""
        self.released.touch()

    def total(self, instance: str, counter: str) -> float:
        found = next(i for i in self.topology.status().instances if i.id == instance)
        return sum(value for name, value in found.totals.items() if name.startswith(counter))

    def emitted(self) -> float:
        return self.total(FLOOD, "__emit-count")

    def executed(self) -> float:
        return self.total(SLOW, "__execute-count")

    def spent_ms(self, instance: str) -> float:
        """How long the instance has throttled the spouts."""
        return sum(s.totals.get(SPENT + instance, 0.0) for s in self.topology.status().stmgrs)

    def culprits(self) -> set[str]:
        """Everything that has ever throttled the spouts."""
        return {
            name.removeprefix(SPENT)
            for s in self.topology.status().stmgrs
            for name, value in s.totals.items()
            if name.startswith(SPENT) and value > 0
        }

    def held_ms(self, stmgr: str) -> float:
        """How long the spouts of a container were held."""
        return next(s.totals.get(HELD, 0.0) for s in self.topology.status().stmgrs if s.location.id == stmgr)

    def rss(self) -> dict[str, int]:
        """Resident bytes of every process."""
        return {id: psutil.Process(pid).memory_info().rss for id, pid in self.topology.processes().items()}

    def all_executed(self) -> None:
        assert self.emitted() == self.executed() > 0

    def next_report(self, before: float) -> tuple[float, float]:
        """Wait for the slow bolt to report more; what it has executed, and the time."""
        eventually_sync(lambda: _above(self.executed(), before))
        return self.executed(), time.monotonic()

    def backpressure_has_ended(self) -> None:
        """No time in backpressure for two reports."""
        before_ms = self.spent_ms(SLOW)
        time.sleep(0.5)
        assert self.spent_ms(SLOW) == before_ms


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flooded]:
    released = tmp_path_factory.mktemp("slow") / "released"
    with LocalCluster({**FAST, **SMALL}) as cluster:
        topology = cluster.submit(slow_topology(released, payload_bytes=1000))
        yield Flooded(topology.wait_running(), released)


def test_backpressure_names_the_culprit_in_the_status_and_to_prometheus(flooded: Flooded) -> None:
    flooded.flood()
    assert flooded.culprits() == {SLOW}
    address = (flooded.topology.launch.container_dir(1) / "prometheus.address").read_text()
    series = [
        line
        for line in scrape(flooded.topology.launch, address).splitlines()
        if line.startswith("heron_time_spent_back_pressure_by_compid_seconds_total{") and f'key="{SLOW}"' in line
    ]
    assert len(series) == 1
    assert float(series[0].rsplit(" ", 1)[1]) > 0.4
    assert re.search(r'instance="stmgr-1"', series[0])


def test_heron_status_says_who_holds_the_spouts(flooded: Flooded) -> None:
    flooded.flood()
    home = next(parent for parent in flooded.topology.launch.dir.parents if parent.name == "topologies").parent
    heron = Path(sys.executable).with_name("heron")
    told = subprocess.run(
        [heron, "status", "slow"],
        env={**os.environ, "HERON_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert re.search(rf"^{SLOW} has throttled the spouts for \d+ s", told.stdout, re.MULTILINE)


def test_memory_is_flat_while_the_bolt_works(flooded: Flooded) -> None:
    flooded.flood()
    rss, executed = flooded.rss(), flooded.executed()
    eventually_sync(lambda: _above(flooded.executed(), executed + 2000))
    grown = {id: (after - rss[id]) / KIB for id, after in flooded.rss().items()}
    assert max(grown.values()) < 4 * KIB, f"KiB more after 2000 tuples: {grown}"


def test_spouts_of_other_containers_are_held_too(flooded: Flooded) -> None:
    flooded.flood()
    held_ms = flooded.held_ms("stmgr-2")
    eventually_sync(lambda: _above(flooded.held_ms("stmgr-2"), held_ms + 1000))


def test_nothing_is_lost_when_the_culprit_catches_up(flooded: Flooded) -> None:
    flooded.flood()
    flooded.topology.deactivate()
    flooded.release()
    eventually_sync(flooded.all_executed)
    assert flooded.total(SLOW, "missing") == 0
    eventually_sync(flooded.backpressure_has_ended)
    flooded.topology.activate()
    bystander = flooded.total("container_2_quick_4", "__execute-count")
    eventually_sync(lambda: _above(flooded.total("container_2_quick_4", "__execute-count"), bystander + 100))
    assert flooded.culprits() == {SLOW}


def test_backpressure_outlives_a_killed_culprit_and_ends_with_its_successor(flooded: Flooded) -> None:
    flooded.flood()
    pid = flooded.topology.processes()[SLOW]
    os.kill(pid, signal.SIGKILL)
    eventually_sync(lambda: _other(flooded.topology.processes().get(SLOW), pid))
    flooded.topology.wait_running()
    flooded.flood()
    flooded.release()
    eventually_sync(flooded.backpressure_has_ended)
    executed = flooded.executed()
    eventually_sync(lambda: _above(flooded.executed(), executed + 200))


@pytest.mark.skipif("HERON_BACKPRESSURE_SECONDS" not in os.environ, reason="only with HERON_BACKPRESSURE_SECONDS=60")
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"topology.reliability.mode": "ATLEAST_ONCE"},
        {"topology.reliability.mode": "ATLEAST_ONCE", "topology.max.spout.pending": 1_000_000},
    ],
    ids=["at most once", "at least once", "at least once, a million pending"],
)
def test_a_long_flood_with_default_settings_is_flat_and_lossless(tmp_path: Path, config: dict[str, Any]) -> None:
    with LocalCluster() as cluster:
        topology = cluster.submit(slow_topology(tmp_path / "released", payload_bytes=10_000, **config))
        flooded = Flooded(topology.wait_running(), tmp_path / "released")
        samples: list[dict[str, int]] = []
        executed, began_s = flooded.next_report(0)
        while time.monotonic() < began_s + float(os.environ["HERON_BACKPRESSURE_SECONDS"]):
            time.sleep(5)
            samples.append({id: rss >> 20 for id, rss in flooded.rss().items()})
        after, ended_s = flooded.next_report(flooded.executed())
        rate = (after - executed) / (ended_s - began_s)
        print(f"\n{rate:.0f} tuples/s (a loop that only sleeps: {_sleep_rate():.0f}/s)", end="; ")
        print(f"{flooded.spent_ms(SLOW) / 1e3:.1f} s in backpressure")
        for id in samples[0]:
            print(f"  {id:24} MiB every 5 s: {' '.join(str(sample[id]) for sample in samples)}")
        topology.deactivate()
        flooded.release()
        eventually_sync(flooded.all_executed)
        print(f"{flooded.emitted():.0f} emitted, all executed")
        assert flooded.total(SLOW, "missing") == 0
        settled = samples[len(samples) // 3 :]
        for id in settled[0]:
            found = [sample[id] for sample in settled]
            assert found[-1] - found[0] < 16, f"{id} grows: {found} MiB"


def _sleep_rate() -> float:
    """How often a second this machine lets a process sleep for 1 ms."""
    began_s = time.perf_counter()
    for _ in range(200):
        time.sleep(SLEEP_S)
    return 200 / (time.perf_counter() - began_s)


def _other(found: int | None, before: int) -> None:
    assert found not in (None, before)


def _above(found: float, least: float) -> None:
    assert found > least
