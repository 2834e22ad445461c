"""What the chaos topologies wrote down, and the promise that it must keep."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from heronpy.testing import TopologyHandle, eventually_sync

WITHIN_S = 180.0
"""Long, because only a loss takes it: what dies is started again while the machine does other things."""


@dataclass
class Recovery:
    """How long it took after a failure, in seconds: from the kill, or from the end of what lasted a while."""

    since_s: float
    whole_s: float = 0.0
    """Until every process was back and attached."""
    pause_s: float = 0.0
    """The longest time in which no last bolt executed anything."""
    settled_s: float = 0.0
    """Until every number, also those emitted before, was acked."""

    def over(self) -> None:
        """What lasted a while has ended: recovery begins now."""
        self.since_s = time.monotonic()


class Ledger:
    """The records of one running topology."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self._goal = 0
        self.recoveries: dict[str, Recovery] = {}
        self.raise_goal(0)

    @property
    def goal(self) -> int:
        """The first number that is not to be emitted yet."""
        return self._goal

    def raise_goal(self, by: int) -> None:
        """Have the spouts emit so many more numbers."""
        self._goal += by
        new = self.dir / "goal.new"
        new.write_text(str(self._goal))
        os.replace(new, self.dir / "goal")

    def acked(self) -> set[int]:
        return {int(line) for path in self.dir.glob("acked-*") for line in _lines(path)}

    def executed(self) -> list[tuple[float, int]]:
        """Time and number of every execution in the last bolts, in the order of time."""
        found = [line.split() for path in self.dir.glob("executed-*") for line in _lines(path)]
        return sorted((float(at), int(number)) for number, at in found)

    def count_executed(self) -> int:
        """How many different numbers were executed."""
        return len({number for _, number in self.executed()})

    def wait_for_executed(self, more: int, *, before: int | None = None, within_s: float = WITHIN_S) -> None:
        """Wait until so many numbers were executed that never were before: now, or when `before` were."""
        since = self.count_executed() if before is None else before

        def check() -> None:
            now = self.count_executed()
            assert now >= since + more, f"{now - since} of {more} more numbers were executed"

        eventually_sync(check, within_s=within_s)

    def wait_for_executed_from(self, first: int, count: int, *, within_s: float = WITHIN_S) -> None:
        """Wait until so many numbers from `first` on were executed."""

        def check() -> None:
            found = len({number for _, number in self.executed() if number >= first})
            assert found >= count, f"{found} of {count} numbers from {first} on were executed"

        eventually_sync(check, within_s=within_s)

    def wait_settled(self, *, within_s: float = WITHIN_S) -> None:
        """Wait until every number below the goal was acked, and check that all of them were executed."""
        wanted = set(range(self._goal))

        def check() -> None:
            missing = wanted - self.acked()
            assert not missing, f"{len(missing)} of {self._goal} numbers were never acked, e.g. {sorted(missing)[:5]}"

        eventually_sync(check, within_s=within_s)
        executed = {number for _, number in self.executed()}
        assert executed >= wanted, f"acked, but never executed: {sorted(wanted - executed)[:5]}"

    @contextmanager
    def disturbed(
        self, what: str, topology: TopologyHandle, *, numbers: int = 500, within_s: float = WITHIN_S
    ) -> Iterator[Recovery]:
        """Have data flow, let the block do its worst, and see that all of it is made good.

        Within `within_s` of the block's end every process must be back and every number acked. Times count from the
        block's begin, or from when it calls `over()`.
        """
        before = self.count_executed()  # first: on a busy machine all may be done before one looks
        self.raise_goal(numbers)
        self.wait_for_executed(numbers // 10, before=before)
        began = time.monotonic()
        recovery = self.recoveries[what] = Recovery(began)
        yield recovery
        topology.wait_running(within_s)
        recovery.whole_s = time.monotonic() - recovery.since_s
        self.wait_settled(within_s=within_s)
        recovery.settled_s = time.monotonic() - recovery.since_s
        recovery.pause_s = _longest_pause([at for at, _ in self.executed() if at >= began - 0.5])
        print(
            f"\nrecovery after {what}: whole {recovery.whole_s:.1f} s, longest pause {recovery.pause_s:.1f} s, "
            f"settled {recovery.settled_s:.1f} s",
            flush=True,
        )


def everyone(topology: TopologyHandle) -> dict[str, int]:
    """The pids of all its processes, once all of them run."""
    status = topology.status()
    expected = {"tmaster", *(i.id for i in status.instances), *(s.location.id for s in status.stmgrs)}
    for container in {0, *(i.container for i in status.instances)}:
        expected |= {f"executor-{container}", f"metricsmgr-{container}"}

    def check() -> dict[str, int]:
        running = topology.processes()
        assert running.keys() >= expected, f"these do not run: {sorted(expected - running.keys())}"
        return running

    return eventually_sync(check)


def kill_all(*pids: int) -> None:
    """kill -9. One of them may have ended with another."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def eventually_pid(topology: TopologyHandle, process: str, usable: Callable[[int], bool]) -> int:
    """Wait until a process has a pid that `usable` accepts."""

    def check() -> int:
        pid = topology.processes().get(process)
        assert pid is not None, f"{process} does not run"
        assert usable(pid), f"{process} still has pid {pid}"
        return pid

    return eventually_sync(check)


def _lines(path: Path) -> list[str]:
    # A line that is being written is not there yet.
    return path.read_text().rpartition("\n")[0].splitlines()


def _longest_pause(times: list[float]) -> float:
    return max((b - a for a, b in itertools.pairwise(times)), default=0.0)
