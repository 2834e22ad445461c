"""A query in real processes, and whether its rows are right."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heronpy import submit
from heronpy.api import api_constants
from heronpy.bench import _processes
from heronpy.bench.nexmark._answers import Answer, collected
from heronpy.bench.nexmark._queries import Options, topology
from heronpy.proto import topology_pb2
from heronpy.testing import LocalCluster, TopologyHandle

POLL_S = 0.5
START_TIMEOUT_S = 180.0
CHECKPOINT_TIMEOUT_S = 300.0
PROPERTIES = {"heron.executor.stop.timeout.ms": 2000}


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a query."""

    query: str
    reliability: str
    """A value of `TopologyReliabilityMode`."""
    rows: int
    """That there must be."""
    wrong: str
    """What is missing or too much; empty: the answer is right."""
    seconds: float
    """From the first event to the last row that is visible."""
    cpu_s: float | None
    """Of all processes, without their start; None if some were killed."""
    kills: int


def run_query(
    query: str,
    files: Path,
    expected: Answer,
    options: Options,
    *,
    kill_every_s: float | None = None,
    timeout_s: float = 600.0,
    seed: int = 1,
) -> Found:
    """Run a query over files, and compare what it finds.

    Args:
        query: Its name.
        files: The directory of the events.
        expected: Its answer, of which nothing is found yet.
        options: How it is run.
        kill_every_s: Kill one of its processes so often, if there are new rows and others are missing; None: never.
        timeout_s: Rows that are missing then are taken for lost.
        seed: Chooses what is killed.

    Raises:
        UnavailableError: the topology does not start, or a process ended by itself.
    """
    with _output() as output, LocalCluster(PROPERTIES) as cluster:
        definition = topology(query, files, output, options).build()
        definition.protobuf_topology.state = topology_pb2.PAUSED
        running = cluster.submit(definition).wait_running(START_TIMEOUT_S)
        processes = _processes.of_topology(running.launch.topology_id)
        before_s = _processes.cpu_seconds(processes)
        killer = _Killer(random.Random(seed), kill_every_s)
        began_s = time.monotonic()
        running.activate()
        seen: set[Path] = set()
        while not expected.complete and time.monotonic() < began_s + timeout_s:
            time.sleep(POLL_S)
            collected(expected, output, seen)
            if not expected.complete:
                killer.kill_one(running, len(seen))
        seconds = time.monotonic() - began_s
        cpu_s = None
        if not killer.killed:
            after_s = _processes.cpu_seconds(processes)
            cpu_s = sum(after_s[pid] - before_s[pid] for pid in processes)
        running.deactivate()
        if options.reliability == api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE:
            # What would be there twice comes with the last checkpoint.
            submit.take_checkpoint(running.launch, timeout_s=CHECKPOINT_TIMEOUT_S)
        collected(expected, output, seen)
    return Found(query, options.reliability, expected.rows, expected.wrong(), seconds, cpu_s, killer.killed)


class _Killer:
    """Kills processes at random, a given time after one another."""

    def __init__(self, source: random.Random, every_s: float | None) -> None:
        self._source, self._every_s = source, every_s
        self._since_s = time.monotonic()
        self._seen = 0
        self.killed = 0

    def kill_one(self, running: TopologyHandle, seen: int) -> None:
        """Kill one, if it is time, and there are more files than at the last time: else nothing would ever come."""
        if self._every_s is None or time.monotonic() < self._since_s + self._every_s or seen == self._seen:
            return
        self._seen = seen
        processes = running.processes()
        if processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(processes[self._source.choice(sorted(processes))], signal.SIGKILL)
                self.killed += 1
        self._since_s = time.monotonic()


@contextlib.contextmanager
def _output() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="heron-nexmark-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
