"""Hosts are taken away while a topology runs: the experiment of the Storm paper's §3.4, in small.

    python tests/hosts/resilience.py [--hosts 6] [--last 3] [--window-s 60] [--events-per-s 300] [--out FILE.svg]

The topology (`user_counts_topology`) has as many containers as there are hosts. After each window one host vanishes,
and its containers are started on the others. The paper's machines were saturated, and their throughput fell with their
number; here all hosts share the cores of one machine, so the rate is fixed, and what shows is what a loss costs: how
long nothing is acked, how late tuples are, and what had to be emitted again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hosts_scene import running
from user_counts_topology import user_counts

from heronpy import submit
from heronpy.errors import HeronError
from heronpy.testing import eventually_sync
from heronpy.testing.hosts import Hosts, hosts_missing
from heronpy.testing.servers import zookeeper_missing

BUCKET_S = 2
START_S = 300.0
LOST_S = 1.0
"""How long the cluster takes to find out that a host is lost."""


@dataclass
class Bucket:
    acked: int = 0
    latency_s: float = 0.0
    failed: int = 0


def buckets(directory: Path, since_s: float) -> dict[int, Bucket]:
    """What the spouts have written down, by seconds since the start."""
    found: dict[int, Bucket] = defaultdict(Bucket)
    for path in directory.glob("acked-*"):
        for line in path.read_text().rpartition("\n")[0].splitlines():
            at_s, acked, latency_s, failed = line.split()
            bucket = found[int((float(at_s) - since_s) // BUCKET_S) * BUCKET_S]
            bucket.acked += int(acked)
            bucket.latency_s += float(latency_s)
            bucket.failed += int(failed)
    return found


def window_table(found: dict[int, Bucket], removed_s: Sequence[float], end_s: float, hosts: int) -> list[str]:
    """A row for each window, in Markdown."""
    rows = [
        "| from s | hosts | acked/s | mean latency ms | failed | longest without an ack s |",
        "|---|---|---|---|---|---|",
    ]
    edges = [0.0, *removed_s, end_s]
    for number, (begin_s, stop_s) in enumerate(itertools.pairwise(edges)):
        inside = [found.get(second, Bucket()) for second in range(_floor(begin_s), _floor(stop_s), BUCKET_S)]
        acked = sum(bucket.acked for bucket in inside)
        late_ms = 1000 * sum(bucket.latency_s for bucket in inside) / max(1, acked)
        silent = longest = 0
        for bucket in inside:
            silent = 0 if bucket.acked else silent + BUCKET_S
            longest = max(longest, silent)
        rate = acked / max(1.0, stop_s - begin_s)
        failed = sum(bucket.failed for bucket in inside)
        rows.append(f"| {begin_s:.0f} | {hosts - number} | {rate:.0f} | {late_ms:.0f} | {failed} | {longest} |")
    return rows


def plot(found: dict[int, Bucket], removed_s: Sequence[float], end_s: float, hosts: int) -> str:
    """Throughput above, latency below, as SVG; a line where a host was taken away."""
    width, height, left, gap = 760, 170, 60, 40
    seconds = range(0, _floor(end_s), BUCKET_S)
    rates = [found.get(s, Bucket()).acked / BUCKET_S for s in seconds]
    late = [1000 * b.latency_s / b.acked if (b := found.get(s, Bucket())).acked else 0.0 for s in seconds]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {2 * (height + gap) + 20}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    for number, (title, values) in enumerate((("acked tuples per second", rates), ("mean latency, ms", late))):
        top, most = 24 + number * (height + gap), max(*values, 1.0)
        points = " ".join(
            f"{left + width * s / end_s:.1f},{top + height * (1 - value / most):.1f}"
            for s, value in zip(seconds, values, strict=True)
        )
        parts.append(f'<text x="{left}" y="{top - 8}">{title}</text>')
        parts.append(f'<text x="{left - 6}" y="{top + 8}" text-anchor="end">{most:.0f}</text>')
        parts.append(f'<text x="{left - 6}" y="{top + height}" text-anchor="end">0</text>')
        parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>')
        for lost, at_s in enumerate((0.0, *removed_s)):
            x = left + width * at_s / end_s
            dashes = (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + height}" stroke="#c33" stroke-dasharray="3"/>'
            )
            parts.append((dashes if lost else "") + f'<text x="{x + 3:.1f}" y="{top + 12}">{hosts - lost} hosts</text>')
        parts.append(f'<polyline points="{points}" fill="none" stroke="#245" stroke-width="1.3"/>')
        parts.append(f'<text x="{left + width}" y="{top + height + 14}" text-anchor="end">{end_s:.0f} s</text>')
    return "".join([*parts, "</svg>"]) + "\n"


def _floor(seconds: float) -> int:
    return int(seconds // BUCKET_S) * BUCKET_S


def run(arguments: argparse.Namespace, directory: Path) -> tuple[dict[int, Bucket], list[float], float]:
    names = [f"host{n}" for n in range(1, arguments.hosts + 1)]
    with Hosts(*names) as hosts:
        records = hosts.shared / "users"
        records.mkdir()
        topology = user_counts("users", records, containers=arguments.hosts, events_per_s=float(arguments.events_per_s))
        with running(topology, hosts, directory, workers=arguments.hosts) as (launch, cluster, _):

            def ready() -> None:
                try:
                    assert submit.status(launch).ready
                except HeronError as e:
                    raise AssertionError(str(e)) from None

            eventually_sync(ready, within_s=START_S)
            since_s, removed_s = time.time(), []
            # The last first: ZooKeeper is on the first three, and stays.
            for host in reversed(list(hosts)[arguments.last :]):
                time.sleep(arguments.window_s)
                removed_s.append(time.time() - since_s)
                print(f"{removed_s[-1]:.0f} s: {host.name} vanishes", flush=True)
                host.vanish()
                time.sleep(LOST_S)
                cluster.declare_lost(host)
            time.sleep(arguments.window_s)
            return buckets(records, since_s), removed_s, time.time() - since_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Hosts are taken away while a topology runs.")
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--last", type=int, default=3, help="how many are left; at least 3, for ZooKeeper")
    parser.add_argument("--window-s", type=float, default=60)
    parser.add_argument("--events-per-s", type=int, default=300)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if why := hosts_missing() or zookeeper_missing():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as directory:
        found, removed_s, end_s = run(arguments, Path(directory))
    print("\n".join(window_table(found, removed_s, end_s, arguments.hosts)))
    if arguments.out is not None:
        arguments.out.write_text(plot(found, removed_s, end_s, arguments.hosts))


if __name__ == "__main__":
    main()
