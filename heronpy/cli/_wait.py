"""`submit --wait`: watches a topology until tuples flow."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from heronpy import submit
from heronpy.errors import NotFoundError, UnavailableError
from heronpy.proto import tmaster_pb2
from heronpy.runtime import Launch

POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a topology has come."""

    containers: tuple[int, int] = (0, 0)
    """Registered Stream Managers, and all."""
    instances: tuple[int, int] = (0, 0)
    """Instances that are attached, and all."""
    ready: bool = False
    paused: bool = False
    emitted: bool = False
    executed: bool = False
    failure: str = ""
    """The last line of the newest exception."""

    @property
    def done(self) -> bool:
        """Tuples flow from a spout to a bolt; in a paused topology nothing more than being ready can be waited for."""
        return self.ready and (self.paused or (self.emitted and self.executed))

    def __str__(self) -> str:
        tuples = "tuples flow" if self.executed else "first tuples emitted" if self.emitted else "no tuples yet"
        return (
            f"containers {self.containers[0]}/{self.containers[1]}, "
            f"instances {self.instances[0]}/{self.instances[1]}, {'paused' if self.paused else tuples}"
        )


def progress(reply: tmaster_pb2.StatusReply, *, has_bolts: bool = True) -> Progress:
    """Read a status."""
    reports = sorted(reply.exceptions, key=lambda e: e.report.last_time_ms)
    failure = ""
    if reports:
        lines = reports[-1].report.stacktrace.strip().splitlines()
        failure = f"{reports[-1].source}: {lines[-1] if lines else 'unknown error'}"
    emitted = any(counted(i, "__emit-count") for i in reply.instances)
    return Progress(
        containers=(sum(s.registered for s in reply.stmgrs), len(reply.stmgrs)),
        instances=(sum(i.attached for i in reply.instances), len(reply.instances)),
        ready=reply.ready,
        paused=reply.state == "PAUSED",
        emitted=emitted,
        executed=any(counted(i, "__execute-count") for i in reply.instances) or (emitted and not has_bolts),
        failure=failure,
    )


def counted(instance: tmaster_pb2.InstanceStatus, counter: str, *, rate: bool = False) -> float:
    """A counter of an instance over all of its streams: the total, or per second."""
    values = instance.rates if rate else instance.totals
    return sum(v for name, v in values.items() if name == counter or name.startswith(counter + "/"))


def wait(launch: Launch, *, timeout_s: float, has_bolts: bool = True) -> None:
    """Return when tuples flow, or, in a topology that starts paused, when it is ready.

    Raises:
        UnavailableError: not within `timeout_s`; the topology stays submitted.
        NotFoundError: somebody killed it meanwhile.
    """
    deadline = time.monotonic() + timeout_s
    now = Progress()
    with _display(launch.topology) as report:
        report("waiting for the Topology Master")
        while not now.done:
            if time.monotonic() > deadline:
                why = f"; {now.failure}" if now.failure else ""
                raise UnavailableError(
                    f"{launch.topology} was submitted, but after {timeout_s:g} s: {now}{why}; "
                    f"see `heron status {launch.topology}` and `heron logs {launch.topology}`"
                )
            try:
                seen = progress(submit.status(launch), has_bolts=has_bolts)
            except UnavailableError as e:  # it starts, or starts again
                if not launch.dir.exists():
                    raise NotFoundError(f"{launch.topology} was killed before its tuples flowed") from e
                seen = now
            if seen != now:
                now = seen
                report(str(now))
            if not now.done:
                time.sleep(POLL_S)


@contextlib.contextmanager
def _display(topology: str) -> Iterator[Callable[[str], None]]:
    if not sys.stdout.isatty():
        yield lambda text: print(f"{topology}: {text}", flush=True)
        return
    from rich.console import Console

    console = Console(highlight=False)
    with console.status(topology) as line:
        yield lambda text: line.update(f"{topology}: {text}")
