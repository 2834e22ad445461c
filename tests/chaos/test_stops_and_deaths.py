"""Processes that stand still and processes that die, at any moment, several at once and while others start."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Iterator

import pytest
from chain_topology import chain as chain_of
from ledger import Ledger

from heronpy.host import TOPOLOGY_ENV, HostProcess, find_by_environment
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

FAST = {
    "heron.metrics.export.interval.ms": 1000,
    "heron.executor.stop.timeout.ms": 2000,
    "heron.executor.stable.ms": 500,
    "heron.tmanager.stmgr.state.timeout.ms": 3000,
}
STOPS_S = (0.2, 1.0, 2.5, 4.5)
"""The last is longer than the Topology Master waits for a silent Stream Manager."""
LONG_STOP_S = 27.0
"""Longer than it takes until a connection with a silent peer is given up."""
CONTAINERS = 3


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def chain(ledger: Ledger) -> Iterator[TopologyHandle]:
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(chain_of("chain", ledger.dir, par=3, containers=CONTAINERS))
        yield topology.wait_running()
    assert [p.pid for p, _ in find_by_environment({TOPOLOGY_ENV: topology.launch.topology_id})] == []
    assert not topology.launch.dir.exists()


class Fire:
    """What is done to processes, and when; the same for the same dice."""

    def __init__(self, topology: TopologyHandle, ledger: Ledger, dice: random.Random) -> None:
        self._topology, self._ledger, self._dice = topology, ledger, dice
        self._stopped: list[tuple[float, str, HostProcess]] = []

    def burn(self, blows: int, pause_s: float, stops_s: tuple[float, ...]) -> None:
        """Strike so many times; on return nobody stands still."""
        try:
            for _ in range(blows):
                self._strike(stops_s)
                self._ledger.raise_goal(50)
                time.sleep(self._dice.uniform(0, pause_s))  # the failures' rhythm, not a wait for a result
                self._wake(time.monotonic())
            while self._stopped:
                time.sleep(0.05)
                self._wake(time.monotonic())
        finally:
            self._wake(float("inf"))

    def _strike(self, stops_s: tuple[float, ...]) -> None:
        victims = self._topology.processes()
        victim, stop_s = self._dice.random(), self._dice.choice((0.0, 0.0, *stops_s))
        if not victims:
            return
        name = sorted(victims)[int(victim * len(victims))]
        process = HostProcess.of(victims[name])
        if process is None:
            return
        print(
            f"{time.strftime('%H:%M:%S')} {f'stop {name} for {stop_s} s' if stop_s else f'kill -9 {name}'}", flush=True
        )
        process.send(signal.SIGSTOP if stop_s else signal.SIGKILL)
        if stop_s:
            self._stopped.append((time.monotonic() + stop_s, name, process))

    def _wake(self, now_s: float) -> None:
        for item in [item for item in self._stopped if item[0] <= now_s]:
            self._stopped.remove(item)
            item[2].send(signal.SIGCONT)


def check_links(topology: TopologyHandle) -> None:
    """Every Stream Manager says that it is connected with every other one."""
    for one in range(1, CONTAINERS + 1):
        life = topology.logs(f"stmgr-{one}").rpartition("listens for peers")[2]
        for other in range(1, CONTAINERS + 1):
            if one != other:
                lines = re.findall(rf"\b(connected to|disconnected from) stmgr-{other}\b", life)
                opened, closed = lines.count("connected to"), lines.count("disconnected from")
                assert opened > closed, f"stmgr-{one} is apart from stmgr-{other}"


def rounds_of(chain: TopologyHandle, ledger: Ledger, dice: random.Random, until_s: float, rounds_max: int) -> None:
    rounds = 0
    while time.monotonic() < until_s and rounds < rounds_max:
        rounds += 1
        stops_s = (LONG_STOP_S,) if rounds % 8 == 0 else STOPS_S
        with ledger.disturbed(f"round {rounds}", chain) as recovery:
            fire = Fire(chain, ledger, dice)
            fire.burn(dice.randrange(1, 9), dice.choice([0.05, 0.3, 1.5]), stops_s)
            recovery.over()
        eventually_sync(lambda: check_links(chain))


def seed() -> int:
    seed = int(os.environ.get("HERON_CHAOS_SEED", "1"))
    print(f"\nHERON_CHAOS_SEED={seed}")
    return seed


@pytest.mark.skipif("HERON_CHAOS_SECONDS" not in os.environ, reason="only with HERON_CHAOS_SECONDS: make chaos")
@pytest.mark.timeout(0)
def test_a_long_campaign_of_stops_and_deaths_loses_nothing(chain: TopologyHandle, ledger: Ledger) -> None:
    until_s = time.monotonic() + float(os.environ["HERON_CHAOS_SECONDS"])
    rounds_of(chain, ledger, random.Random(seed()), until_s, 1 << 30)
