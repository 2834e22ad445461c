"""What it costs that a topology is on several hosts: the Heron paper's word count and RTAC (section 7) on 1, 2 and 4.

    python tests/hosts/bench_hosts.py [--seconds 5] [--rounds 1] [--rate 400] [--workload RTAC] [--hosts 4]

Every topology has four tasks of each kind. It runs on so many test hosts, one container on each, and just before and
after in as many containers of one host (no namespaces, the local scheduler), at full speed for the CPU per tuple and at
a low rate for the latency. All hosts share the cores of one machine, so the tuples per second of several hosts say
nothing and are not shown; CPU counts every process of the topology, and no ZooKeeper. Network in the kernel, which both
have, counts as far as the kernel charges it to the processes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hosts_scene import running

from heronpy.api import TopologyBuilder
from heronpy.bench import BenchConfig, Place, Report, run
from heronpy.runtime import Launch
from heronpy.testing.hosts import Hosts, hosts_missing
from heronpy.testing.servers import zookeeper_missing

TASKS = 4
HOSTS = (1, 2, 4)
WORKLOADS = {
    "word count": BenchConfig(spouts=TASKS, bolts=TASKS, floor=False),
    "word count, acked": BenchConfig(spouts=TASKS, bolts=TASKS, floor=False, reliability="at-least-once"),
    "RTAC": BenchConfig(topology="rtac", spouts=TASKS, bolts=TASKS, floor=False),
    "RTAC, acked": BenchConfig(topology="rtac", spouts=TASKS, bolts=TASKS, floor=False, reliability="at-least-once"),
}


@dataclass
class Pair:
    """One workload with so many containers, on one host and on as many: at full speed, and at the low rate."""

    workload: str
    containers: int
    full: tuple[list[Report], list[Report]] = field(default_factory=lambda: ([], []))
    low: tuple[list[Report], list[Report]] = field(default_factory=lambda: ([], []))

    def row(self, base_us: float) -> str:
        """As Markdown. `base_us` is the CPU per tuple in one container."""
        one_us, hosts_us = (cpu_us(reports) for reports in self.full)
        stmgrs = (cpu_us(reports, "stmgr") for reports in self.full)
        cells = [
            self.workload,
            self.containers,
            *(f"{us:.2f}" for us in (one_us, hosts_us)),
            *(f"{us:.2f}" for us in stmgrs),
            f"{hosts_us / one_us:.2f}",
            f"{hosts_us / base_us:.2f}",
            *(latency(reports) for reports in self.low),
            *(f"{statistics.median(r.cpu_cores for r in reports):.2f}" if reports else "" for reports in self.low),
        ]
        return "| " + " | ".join(map(str, cells)) + " |"


HEAD = (
    "workload | containers | one host µs | hosts µs | stmgrs of one | stmgrs of hosts | hosts / one | by 1 container | "
    "one p50 / p99 ms | hosts p50 / p99 ms | one, cores | hosts, cores"
)


def cpu_us(reports: Sequence[Report], kind: str = "total") -> float:
    """CPU per tuple, the median of the runs."""
    return statistics.median(report.cpu_us_per_tuple[kind] for report in reports)


def latency(reports: Sequence[Report]) -> str:
    if not reports:
        return ""
    p50, p99 = (statistics.median(r.latency_ms[name] or 0 for r in reports) for name in ("p50", "p99"))
    return f"{p50:.1f} / {p99:.1f}"


def on_hosts(config: BenchConfig) -> Report:
    """Measure on as many hosts as there are containers."""
    names = [f"host{n}" for n in range(1, config.containers + 1)]
    with tempfile.TemporaryDirectory() as directory, Hosts(*names) as hosts:

        @contextmanager
        def submitted(builder: TopologyBuilder, properties: Mapping[str, Any]) -> Iterator[Launch]:
            with running(builder, hosts, Path(directory), workers=len(names), config=properties) as (launch, _, _):
                yield launch

        return run(config, place=Place(hosts.shared, submitted))


def measure(pair: Pair, config: BenchConfig) -> None:
    """One round: one host and several, at full speed and at the rate."""
    for reports, rate in ((pair.full, None), (pair.low, config.rate))[: 2 if config.rate else 1]:
        for into, where in zip(reports, (run, on_hosts), strict=True):
            report = where(replace(config, rate=rate))
            into.append(report)
            print(
                f"{pair.workload}, {pair.containers} containers, {where.__name__}, rate {rate}: "
                f"{report.cpu_us_per_tuple} us, latency {report.latency_ms} ms, {report.cpu_cores} cores, "
                f"{report.tuples_per_s:.0f}/s, {report.lost} lost",
                file=sys.stderr,
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs that a topology is on several hosts.")
    parser.add_argument("--seconds", type=float, default=5, help="measured time of each topology")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds before it")
    parser.add_argument("--rounds", type=int, default=1, help="medians are shown")
    parser.add_argument(
        "--rate", type=float, default=400, help="tuples per second where latency is measured; 0: it is not"
    )
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="only this one; may be repeated")
    parser.add_argument("--hosts", type=int, action="append", help="only so many; may be repeated")
    arguments = parser.parse_args()
    if why := hosts_missing() or zookeeper_missing():
        sys.exit(why)
    pairs = [Pair(name, n) for name in arguments.workload or WORKLOADS for n in arguments.hosts or HOSTS]
    times = {"seconds": arguments.seconds, "warm_up_s": arguments.warm_up, "rate": arguments.rate or None}
    for _ in range(arguments.rounds):
        for pair in pairs:
            measure(pair, replace(WORKLOADS[pair.workload], containers=pair.containers, **times))
    print(f"| {HEAD} |\n|{'---|' * len(HEAD.split('|'))}")
    for pair in pairs:
        base = next(first for first in pairs if first.workload == pair.workload)
        print(pair.row(cpu_us(base.full[0])))
    print(", ".join(map(str, pairs[0].full[0][0].machine.values())))


if __name__ == "__main__":
    main()
