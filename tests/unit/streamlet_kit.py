"""Sources with scripted times that end, and sinks that remember, for programs in the simulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heronpy.api import TopologyBuilder
from heronpy.connectors import Record, Sink, SinkContext, SinkWriter, Source, SourceContext, SourceReader
from heronpy.streamlet import Builder, Config
from heronpy.testing import Simulator

WRITTEN: dict[str, list[Any]] = {}
"""What each sink has flushed, by its name."""
ACKED: dict[str, list[str]] = {}
"""Ids of the records that each source was told of."""
_PAUSE_MAX_NS = 20_000_000


class ListSource(Source):
    """Elements with times, divided among tasks in turn; ends. Times are event times if there are any."""

    def __init__(self, name: str, elements: Iterable[Any], times_ms: Sequence[int] | None = None) -> None:
        self.name = name
        self.elements = list(elements)
        self.times_ms = times_ms
        self.timed = times_ms is not None
        ACKED[name] = []

    def open(self, context: SourceContext) -> SourceReader:
        times = self.times_ms or [1000 + n for n in range(len(self.elements))]
        records = [
            Record(element, times[n], f"{self.name}:{n}")
            for n, element in enumerate(self.elements)
            if n % context.num_tasks == context.task_index
        ]
        return ListReader(self.name, records)


class ListReader(SourceReader):
    def __init__(self, name: str, records: list[Record]) -> None:
        self.name = name
        self.records = records
        self.at = 0

    def read(self, limit: int) -> Sequence[Record]:
        found = self.records[self.at : self.at + min(limit, 10)]
        self.at += len(found)
        return found

    def ack(self, records: Sequence[Record]) -> None:
        ACKED[self.name] += [record.id for record in records]

    @property
    def ended(self) -> bool:
        return self.at == len(self.records)


class ListSink(Sink):
    """Remembers in `WRITTEN`."""

    def __init__(self, name: str = "out") -> None:
        self.name = name
        WRITTEN[name] = []

    def open(self, context: SinkContext) -> SinkWriter:
        return ListWriter(self.name)


class ListWriter(SinkWriter):
    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: list[Any] = []

    def write(self, element: Any) -> None:
        self.waiting.append(element)

    def flush(self) -> None:
        WRITTEN[self.name] += self.waiting
        self.waiting = []


def config(*, fusion: bool = True, at_least_once: bool = True, **settings: Any) -> Config:
    made = Config()
    made.set_fusion(fusion)
    made.set_delivery_semantics(Config.ATLEAST_ONCE if at_least_once else Config.ATMOST_ONCE)
    made.set_idle_timeout(60)
    for key, value in settings.items():
        made.set_user_config(key.replace("_", "."), value)
    return made


def topology(builder: Builder, config: Config) -> TopologyBuilder:
    made = TopologyBuilder("program")
    builder.build(made, config)
    return made


def _clock() -> Callable[[], int]:
    """The time in ns, without that for which the machine had none for us: no tuple may time out by it."""
    now_ns = looked_ns = time.monotonic_ns()

    def clock() -> int:
        nonlocal now_ns, looked_ns
        now_ns += min((at := time.monotonic_ns()) - looked_ns, _PAUSE_MAX_NS)
        looked_ns = at
        return now_ns

    return clock


def run(
    builder: Builder,
    config: Config,
    *,
    until: Callable[[], bool],
    within_s: float = 300.0,
    lose: Callable[[Any], bool] = lambda _batch: False,
) -> None:
    """Run a program until a condition holds."""
    with Simulator(topology(builder, config), lose=lose, clock=_clock()) as simulator:
        end = time.monotonic() + within_s
        simulator.run(until=lambda: until() or time.monotonic() > end)
    assert until(), f"after {within_s} s: written {WRITTEN}, acked { ({k: len(v) for k, v in ACKED.items()}) }"


def outcome(make: Callable[[Builder], int], config: Config, results: int, **options: Any) -> list[Any]:
    """What the sink `out` has after a program, sorted: when all records are acked, and so many results are there.

    Args:
        make: builds the program, and returns how many records its sources have.
        config: of the program.
        results: how many results to wait for; where nothing is tracked, acked records say nothing of them.
        options: see `run`.
    """
    builder = Builder()
    ACKED.clear()
    records = make(builder)

    def done() -> bool:
        return len(WRITTEN["out"]) >= results and sum(len(set(ids)) for ids in ACKED.values()) == records

    run(builder, config, until=done, **options)
    return sorted(WRITTEN["out"], key=repr)
