"""The counting topology in real processes, and what its probes say."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from heronpy import submit
from heronpy.bench._probe import Prober, prober
from heronpy.bench.rows.counting import COUNT, REPORT, counting, wrong_counts
from heronpy.bench.rows.pauses import POLL_S
from heronpy.errors import UnavailableError
from heronpy.testing import LocalCluster, TopologyHandle

START_TIMEOUT_S = 180.0
STABLE_MS = 1000
"""Tasks are killed every few seconds: else they are taken for such as cannot live, and started later each time."""
CHECKPOINT_TIMEOUT_S = 300.0
ANSWER_S = 0.2
"""Who does not answer within it is asked again: a process that is killed may have been asked just before."""


class Counting:
    """A counting topology that runs."""

    def __init__(self, topology: TopologyHandle, probes: Prober, keys: int, tasks: int) -> None:
        self.topology = topology
        self.keys = keys
        self.tasks = tasks
        self._probes = probes

    def answers(self) -> list[dict[str, Any]]:
        """What each counting task says of itself; fewer where some cannot answer now."""
        found = []
        for index in range(self.tasks):
            with contextlib.suppress(OSError):  # it is dead, or not yet there
                found.append(self._probes.counters(f"{COUNT}-{index}", ANSWER_S))
        return found

    def wait(self, what: str, done: Callable[[], bool], within_s: float) -> None:
        """Wait for a condition.

        Raises:
            UnavailableError: it does not come; says `what`.
        """
        give_up_s = time.monotonic() + within_s
        while not done():
            if time.monotonic() > give_up_s:
                raise UnavailableError(f"after {within_s:g} s: {what}")
            time.sleep(POLL_S)

    def wait_filled(self, within_s: float = 600.0) -> None:
        """Wait until each key has been counted."""
        self.wait("not all keys have come", lambda: sum(a["count"] for a in self.answers()) >= self.keys, within_s)

    def wait_checkpoint(self, number: int = 1, within_s: float = CHECKPOINT_TIMEOUT_S) -> None:
        """Wait until so many more checkpoints are committed."""
        before = self.newest()
        seen = {before}

        def done() -> bool:
            seen.add(self.newest())
            time.sleep(0.1)
            return len(seen) > number

        self.wait("no checkpoint is committed", done, within_s)

    def newest(self) -> int:
        """The newest checkpoint that is committed."""
        return int(self.topology.status().checkpoints.newest)

    def end(self) -> str:
        """Stop with a last checkpoint. Returns what is wrong with its counts; empty: they are exact."""
        directory = self._probes.directory
        (directory / REPORT).touch()
        self.topology.deactivate()
        checkpoint = submit.take_checkpoint(self.topology.launch, timeout_s=CHECKPOINT_TIMEOUT_S)
        return wrong_counts(directory, checkpoint, self.keys, self.tasks)


@contextlib.contextmanager
def running(*, keys: int, tasks: int, **options: Any) -> Iterator[Counting]:
    """Run a counting topology for the duration of the block; `options` as of `counting`."""
    with (
        tempfile.TemporaryDirectory(prefix="heron-rows-") as scratch,
        prober(Path(scratch) / "p") as probes,
        LocalCluster({"heron.executor.stop.timeout.ms": 2000, "heron.executor.stable.ms": STABLE_MS}) as cluster,
    ):
        builder = counting(probes.directory, keys=keys, tasks=tasks, **options)
        topology = cluster.submit(builder).wait_running(START_TIMEOUT_S)
        yield Counting(topology, probes, keys, tasks)
