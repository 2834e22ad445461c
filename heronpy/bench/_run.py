"""One interleaved measurement: the floor, the engine, the floor again.

What submits is imported late, because the measured tasks import this package, too: it would count as their memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from heronpy.api import api_constants
from heronpy.bench import _processes
from heronpy.bench._floor import running_floor
from heronpy.bench._probe import Prober, prober
from heronpy.bench._report import Report, machine
from heronpy.bench._rtac import EVENTS, USER_COUNT, add_rtac
from heronpy.bench._topology import BOLT, NAME, SPOUT, add_word_count, build, task_names
from heronpy.errors import ConfigError, UnavailableError
from heronpy.examples.random_word_count import WORDS

if TYPE_CHECKING:
    from heronpy.api import TopologyBuilder
    from heronpy.runtime import Launch

START_TIMEOUT_S = 600.0
DRAIN_TIMEOUT_S = 15.0
"""How long no tuple may arrive before the missing ones are taken for lost."""
POLL_S = 0.05

_MODES = api_constants.TopologyReliabilityMode
RELIABILITIES = {
    "at-most-once": _MODES.ATMOST_ONCE,
    "at-least-once": _MODES.ATLEAST_ONCE,
    "effectively-once": _MODES.EFFECTIVELY_ONCE,
}


TOPOLOGIES = {"word-count": (add_word_count, SPOUT, BOLT), "rtac": (add_rtac, EVENTS, USER_COUNT)}
"""What adds the components, which of them emits, and which counts what has arrived."""

Submitted = Callable[["TopologyBuilder", Mapping[str, Any]], contextlib.AbstractContextManager["Launch"]]
"""Runs a topology, with these configuration keys, for the duration of a block."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the topology is measured, if not as a local one."""

    directory: Path
    """Its tasks see this directory at the same path."""
    submitted: Submitted


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """What to measure."""

    topology: str = "word-count"
    """`word-count`, or `rtac`: the active users by second and kind of event."""
    spouts: int = 1
    """Spout tasks."""
    bolts: int = 1
    """Counting tasks; rtac: and as many that distribute events to them."""
    containers: int = 1
    """Containers, each with a Stream Manager."""
    reliability: str = "at-most-once"
    """`at-most-once`; `at-least-once`: every tuple has a message id and is acked; or `effectively-once`: counts and
    positions are state, of which checkpoints are taken."""
    keys: int = WORDS
    """How many different words there are."""
    checkpoint_interval_s: float = 10.0
    """Time between two checkpoints, with effectively-once."""
    seconds: float = 10.0
    """The measured time of the topology; each of the two runs of the floor takes half of it."""
    warm_up_s: float = 2.0
    """Time between the first tuple and the beginning of the measurement, for the topology and for the floor."""
    rate: float | None = None
    """Tuples per second of all spout tasks together; None for as many as possible."""
    drain_interval_ms: float | None = None
    """How long a tuple may wait to be sent with others; None for the engine's default."""
    max_spout_pending: int | None = None
    """Unacked tuples per spout task, with at-least-once; None leaves it to the engine."""
    tls: bool = True
    """Whether the links between containers are encrypted; False only to see what that costs."""
    counted_apart: bool = False
    """At most once: count tuples as effectively once has to, apart from words, to compare the two."""
    floor: bool = True
    """Whether to measure the floor; there is none for rtac."""

    def __post_init__(self) -> None:
        if self.topology not in TOPOLOGIES:
            raise ConfigError(f"topology must be {' or '.join(TOPOLOGIES)}, not {self.topology!r}")
        if self.topology == "rtac" and self.reliability == "effectively-once":
            raise ConfigError("rtac has no state to be effectively once with: measure it at-most-once or at-least-once")
        if self.reliability not in RELIABILITIES:
            raise ConfigError(f"reliability must be {' or '.join(RELIABILITIES)}, not {self.reliability!r}")
        for name in ("spouts", "bolts", "containers", "keys", "max_spout_pending"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name.replace('_', '-')} must be at least 1, not {value}")
        if self.seconds <= 0 or self.warm_up_s < 0:
            raise ConfigError("seconds must be more than 0, and the warm-up not negative")
        if self.checkpoint_interval_s <= 0:
            raise ConfigError(f"checkpoint-interval must be more than 0, not {self.checkpoint_interval_s}")
        if self.rate is not None and self.rate <= 0:
            raise ConfigError(f"rate must be more than 0 tuples per second, not {self.rate}")
        if self.drain_interval_ms is not None and self.drain_interval_ms < 0:
            raise ConfigError(f"drain-interval-ms must not be negative, not {self.drain_interval_ms}")


@dataclass(frozen=True, slots=True)
class Window:
    """What was measured between two moments."""

    tuples: int
    seconds: float
    cpu_s: dict[str, float]
    latencies_ns: npt.NDArray[np.int64]

    @property
    def tuples_per_core_s(self) -> float:
        return self.tuples / max(sum(self.cpu_s.values()), 1e-9)


def run(
    config: BenchConfig, *, place: Place | None = None, on_step: Callable[[str], None] = lambda step: None
) -> Report:
    """Measure. Afterwards, also after an error or Ctrl-C, no process and no file of it is left.

    Args:
        place: Where the topology runs; None: here, as a local one. The floor always runs here.
        on_step: Called with a few words before each step, for progress displays.

    Raises:
        UnavailableError: the topology does not start, or one of its processes ended while it was measured.
    """
    has_floor = config.floor and config.topology == "word-count"
    with _scratch() as scratch:
        floors = []
        if has_floor:
            on_step("floor: two plain processes")
            floors.append(_floor(config, scratch / "floor-1"))
        window, rss_mb, lost = _engine(config, place or _local(scratch), on_step)
        if has_floor:
            on_step("floor: two plain processes, again")
            floors.append(_floor(config, scratch / "floor-2"))
    return _report(config, window, rss_mb, lost, [f.tuples_per_core_s for f in floors])


def _report(config: BenchConfig, window: Window, rss_mb: dict[str, float], lost: int, floors: list[float]) -> Report:
    if window.tuples == 0:
        raise UnavailableError("no tuple arrived in the measured time: measure longer, or at a higher rate")
    cpu_s = sum(window.cpu_s.values())
    floor = statistics.fmean(floors) if floors else None
    cost_us = {"total": cpu_s, **window.cpu_s}
    ns = window.latencies_ns
    p50, p99, p999 = np.percentile(ns, [50, 99, 99.9]) / 1e6 if ns.size else (None, None, None)
    return Report(
        tuples_per_s=round(window.tuples / window.seconds, 1),
        tuples_per_core_s=round(window.tuples_per_core_s, 1),
        floor_tuples_per_core_s=round(floor, 1) if floor else None,
        ratio_to_floor=round(window.tuples_per_core_s / floor, 4) if floor else None,
        floor_runs_tuples_per_core_s=[round(f, 1) for f in floors],
        cpu_us_per_tuple={kind: round(s / window.tuples * 1e6, 4) for kind, s in cost_us.items()},
        cpu_share={kind: round(s / max(cpu_s, 1e-9), 4) for kind, s in window.cpu_s.items()},
        cpu_cores=round(cpu_s / window.seconds, 3),
        latency_ms={
            name: None if value is None else round(float(value), 3)
            for name, value in (("p50", p50), ("p99", p99), ("p999", p999))
        },
        latency_samples=int(ns.size),
        rss_mb=rss_mb,
        lost=lost,
        config=asdict(config),
        machine=machine(),
    )


def _floor(config: BenchConfig, directory: Path) -> Window:
    names = task_names(BOLT, 1)
    with prober(directory) as probes, running_floor(directory, config.keys) as kinds:
        _await_tuples(probes, names)
        time.sleep(config.warm_up_s)
        return _measure(probes, names, lambda: kinds, config.seconds / 2)


def _engine(config: BenchConfig, place: Place, on_step: Callable[[str], None]) -> tuple[Window, dict[str, float], int]:
    from heronpy import submit

    _, spout, bolt = TOPOLOGIES[config.topology]
    spouts, bolts = task_names(spout, config.spouts), task_names(bolt, config.bolts)
    with prober(place.directory / "probes") as probes:
        on_step("topology: starting")
        with _running_topology(config, place, probes.directory) as launch:
            _await_tuples(probes, [*bolts, *spouts])
            on_step("topology: warming up")
            time.sleep(config.warm_up_s)
            on_step(f"topology: measuring for {config.seconds:g} s")
            window = _measure(probes, bolts, lambda: _processes.of_topology(launch.topology_id), config.seconds)
            rss_mb = _processes.rss_peak_mb(_processes.of_topology(launch.topology_id))
            on_step("topology: draining")
            submit.deactivate(launch)
            lost = _drain(probes, spouts, bolts)
            on_step("topology: ending")
    return window, rss_mb, lost


def _measure(probes: Prober, bolts: list[str], processes: Callable[[], dict[int, str]], seconds: float) -> Window:
    kinds = processes()
    probes.latencies_ns(bolts)  # those of the warm-up
    count_before, cpu_before = probes.sample(bolts), _processes.cpu_seconds(kinds)
    time.sleep(seconds)
    count_after, cpu_after = probes.sample(bolts), _processes.cpu_seconds(kinds)
    if processes().keys() != kinds.keys():
        raise UnavailableError("a process of the topology ended or was started while it was measured")
    return Window(
        tuples=count_after.count - count_before.count,
        seconds=count_after.at_s - count_before.at_s,
        cpu_s=_processes.cpu_by_kind(kinds, cpu_before, cpu_after),
        latencies_ns=probes.latencies_ns(bolts),
    )


def _await_tuples(probes: Prober, names: list[str]) -> None:
    """Wait until every task of `names` is up and tuples arrive."""
    give_up_s = time.monotonic() + START_TIMEOUT_S
    while not probes.up(names) or probes.sample(names).count == 0:
        if time.monotonic() > give_up_s:
            raise UnavailableError(f"no tuple arrived within {START_TIMEOUT_S:g} s")
        time.sleep(POLL_S)


def _drain(probes: Prober, spouts: list[str], bolts: list[str]) -> int:
    """Wait until everything that was emitted has been executed, or nothing arrives any more. Returns the difference."""
    before, since_s = (-1, -1), time.monotonic()
    while True:
        now = probes.sample(spouts).count, probes.sample(bolts).count
        if now != before:
            before, since_s = now, time.monotonic()
        elif now[0] == now[1] or time.monotonic() - since_s > DRAIN_TIMEOUT_S:
            return now[0] - now[1]
        time.sleep(POLL_S)


@contextlib.contextmanager
def _running_topology(config: BenchConfig, place: Place, probes: Path) -> Iterator[Launch]:
    builder = build(
        TOPOLOGIES[config.topology][0],
        spouts=config.spouts,
        bolts=config.bolts,
        containers=config.containers,
        reliability=RELIABILITIES[config.reliability],
        rate=config.rate,
        keys=config.keys,
        checkpoint_interval_s=config.checkpoint_interval_s,
        max_spout_pending=config.max_spout_pending,
        counted_apart=config.counted_apart,
        directory=probes,
    )
    properties: dict[str, float] = {}
    if not config.tls:
        properties["heron.security.tls"] = False
    if config.drain_interval_ms is not None:
        properties["heron.instance.emit.batch.time.ms"] = config.drain_interval_ms
    with place.submitted(builder, properties) as launch:
        try:
            yield launch
        except UnavailableError as e:
            raise UnavailableError(f"{e}; logs: {_keep_logs(launch)}") from e


def _local(scratch: Path) -> Place:
    @contextlib.contextmanager
    def submitted(builder: TopologyBuilder, properties: Mapping[str, Any]) -> Iterator[Launch]:
        from heron_scheduler import owned_by

        from heronpy import submit
        from heronpy.host import HostProcess
        from heronpy.loader import Definition

        me = HostProcess.of(os.getpid())
        assert me is not None, "this process runs"
        home = scratch / "home"
        with owned_by(me):  # however the benchmark ends, its topology ends
            launch = submit.submit(Definition.of(builder), cluster="local", home=home, properties=properties)
        try:
            yield launch
        finally:
            submit.kill(launch)

    return Place(scratch, submitted)


def _keep_logs(launch: Launch) -> Path:
    kept = Path(tempfile.mkdtemp(prefix=f"heron-{NAME}-logs-"))
    for logs in launch.dir.glob("container_*/log-files"):
        shutil.copytree(logs, kept / logs.parent.name)
    return kept


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=f"heron-{NAME}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
