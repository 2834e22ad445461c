"""Streamlet programs at least once with checkpoints: whatever is restored when, nothing that came is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from heronpy.api import TopologyBuilder
from heronpy.connectors import Record, Sink, SinkContext, SinkWriter, Source, SourceContext, SourceReader
from heronpy.errors import CheckpointError, ConfigError, UnavailableError
from heronpy.streamlet import (
    AfterCount,
    AfterWatermark,
    Builder,
    Config,
    Context,
    Generator,
    Streamlet,
    TransformOperator,
    WindowConfig,
)
from heronpy.testing import Simulator

STEP_MS = 20
QUIET_STEPS = 150
"""So long nothing new comes: longer than ticks, the idle timeout and the grace of late panes."""
NUMBERS = 60


class Queue(Source):
    """Gives again what nobody has acknowledged, when it is opened; has no positions."""

    timed = True
    acked: ClassVar[set[int]] = set()

    def open(self, context: SourceContext) -> SourceReader:
        mine = range(context.task_index, NUMBERS, context.num_tasks)
        return QueueReader([n for n in mine if n not in Queue.acked])


class QueueReader(SourceReader):
    def __init__(self, waiting: list[int]) -> None:
        self.waiting = waiting

    def read(self, limit: int) -> Sequence[Record]:
        found, self.waiting = self.waiting[:3], self.waiting[3:]
        return [Record(n, n * 1000, str(n)) for n in found]

    def ack(self, records: Sequence[Record]) -> None:
        Queue.acked.update(record.value for record in records)


class Out(Sink):
    """What is flushed is there; what is not is lost with its writer."""

    exactly_once = True  # which is not asked for here
    written: ClassVar[list[Any]] = []
    reachable = True

    def open(self, context: SinkContext) -> SinkWriter:
        return OutWriter()


class OutWriter(SinkWriter):
    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def write(self, element: Any) -> None:
        self.waiting.append(element)

    def flush(self) -> None:
        if not Out.reachable:
            raise UnavailableError("the sink is away")
        Out.written += self.waiting
        self.waiting = []


class First(TransformOperator):
    """Emits what it has not seen before."""

    def setup(self, context: Context) -> None:
        self.context, self.state = context, context.get_state()

    def transform(self, tup: Any) -> None:
        (element,) = tup.values
        if self.state.get(element) is None:
            self.state.put(element, True)
            self.context.emit([element])


class Total(TransformOperator):
    """Counts what it has seen."""

    def setup(self, context: Context) -> None:
        self.context, self.state = context, context.get_state()

    def transform(self, tup: Any) -> None:
        self.state.put("n", self.state.get("n", 0) + 1)
        self.context.emit([(self.context.get_partition_index(), self.state.get("n"))])


def numbers(builder: Builder, partitions: int = 2) -> Streamlet:
    return builder.new_source(Queue()).set_num_partitions(partitions).set_name("numbers")


def sinks_beside_their_source(builder: Builder) -> None:
    numbers(builder).map(lambda n: (n, 1)).to_sink(Out())


def counts(builder: Builder) -> None:
    numbers(builder).map(lambda n: (n % 4, n)).count_by_key().to_sink(Out())


def operators(builder: Builder) -> None:
    numbers(builder).repartition(2, lambda n: n % 2).set_name("divided").transform(First()).map(
        lambda n: (n, 1)
    ).to_sink(Out())


def operators_before_windows(builder: Builder) -> None:
    first = numbers(builder, 1).transform(First()).repartition(2).map(lambda n: (n % 3, 1))
    sums = first.reduce_by_key_and_window(WindowConfig(5, 5), lambda a, b: a + b)
    sums.map(lambda e: ((e[0].key, e[0].window.start), e[1])).to_sink(Out())


def operators_beside_their_source(builder: Builder) -> None:
    numbers(builder).transform(First()).map(lambda n: (n, 1)).to_sink(Out())


def counts_behind_operators(builder: Builder) -> None:
    numbers(builder).transform(First()).map(lambda n: (n % 4, n)).count_by_key().to_sink(Out())


def totals_beside_their_source(builder: Builder) -> None:
    numbers(builder).transform(Total()).to_sink(Out())


def windows(builder: Builder) -> None:
    keyed = numbers(builder).map(lambda n: (n % 3, 1))
    sums = keyed.reduce_by_key_and_window(WindowConfig(6, 2), lambda a, b: a + b)
    sums.map(lambda e: ((e[0].key, e[0].window.start), e[1])).to_sink(Out())


def joins(builder: Builder) -> None:
    left = numbers(builder).map(lambda n: (n % 4, n))
    right = builder.new_source(Queue()).map(lambda n: (n % 4, -n))
    left.join(right, WindowConfig(8, 8), lambda a, b: (a, b)).map(lambda e: (e[1], 1)).to_sink(Out())


def panes(builder: Builder) -> None:
    keyed = numbers(builder).map(lambda n: (n % 3, 1))
    window = WindowConfig(6, 2).with_trigger(AfterWatermark(early=AfterCount(2)))
    sums = keyed.reduce_by_key_and_window(window, lambda a, b: a + b)
    sums.map(lambda e: ((e[0].key, e[0].window.start), e[1])).to_sink(Out())


def late_elements(builder: Builder) -> None:
    lists = numbers(builder).map(lambda n: (n % 3, [n]))
    timely = lists.reduce_by_key_and_window(WindowConfig(6, 6).with_allowed_lateness(0), lambda a, b: a + b)
    timely.union(timely.late()).flat_map(lambda e: [(n, 1) for n in e[1]]).to_sink(Out())


def global_windows(builder: Builder) -> None:
    lists = numbers(builder).map(lambda n: (n % 3, [n]))
    found = lists.reduce_by_key_and_window(WindowConfig.create_global_window(AfterCount(7)), lambda a, b: a + b)
    found.flat_map(lambda e: [(n, 1) for n in e[1]]).to_sink(Out())


PROGRAMS: dict[str, tuple[Callable[[Builder], None], Callable[[list[int]], int]]] = {
    "sinks": (sinks_beside_their_source, sum),
    "counts": (counts, max),
    "operators": (operators, sum),
    "operators before windows": (operators_before_windows, sum),
    "operators beside their source": (operators_beside_their_source, sum),
    "counts behind operators": (counts_behind_operators, max),
    "windows": (windows, sum),
    "panes": (panes, sum),
    "late elements": (late_elements, sum),
    "global windows": (global_windows, sum),
    "joins": (joins, sum),
}
"""Results are of a name and a number: what all numbers of a name come to."""


@pytest.fixture(autouse=True)
def clock() -> Iterator[Callable[[int], None]]:
    """A time that only the test advances."""
    now_ms = 1_000_000

    def advance(by_ms: int) -> None:
        nonlocal now_ms
        now_ms += by_ms

    Clock.ns = lambda: now_ms * 1_000_000
    with pytest.MonkeyPatch.context() as patch:
        for module in ("_bolts", "_spout", "_store_bolt", "_task", "_window_bolts"):
            patch.setattr(f"heronpy.streamlet.{module}.now_ms", lambda: now_ms)
        yield advance


class Clock:
    ns: ClassVar[Callable[[], int]]


def simulated(make: Callable[[Builder], None], **config: Any) -> Simulator:
    Queue.acked.clear()
    Out.written.clear()
    Out.reachable = True
    builder, topology, settings = Builder(), TopologyBuilder("program"), Config()
    make(builder)
    settings.set_delivery_semantics(Config.ATLEAST_ONCE)
    settings.set_user_config("topology.stateful.checkpoint.interval.seconds", 3600)
    for key, value in config.items():
        settings.set_user_config(key, value)
    settings.set_max_lateness(2)
    settings.set_idle_timeout(1)
    builder.build(topology, settings)
    return Simulator(topology, clock=lambda: Clock.ns())


def steps(simulator: Simulator, advance: Callable[[int], None], count: int) -> None:
    for _ in range(count):
        advance(STEP_MS)
        simulator.step()


def outcome(name: str, faults: Sequence[str], advance: Callable[[int], None]) -> dict[Any, int]:
    """What each name comes to after this, when all is acked."""
    make, total = PROGRAMS[name]
    with simulated(make) as simulator:
        do: dict[str, Callable[[], object]] = {
            "step": lambda: steps(simulator, advance, 1),
            "second": lambda: steps(simulator, advance, 50),
            "checkpoint": simulator.checkpoint,
            "abort": lambda: simulator.checkpoint(commit=False),
            "unheard": lambda: simulator.checkpoint(tell=False),
            "restore": simulator.restore,
            "kill": lambda: simulator.restore(kill=True),
        }
        for each in faults:
            do[each]()
        steps(simulator, advance, QUIET_STEPS)
        simulator.checkpoint()
        steps(simulator, advance, 10)
        simulator.checkpoint()
        steps(simulator, advance, 10)
        assert Queue.acked == set(range(NUMBERS))
    found: dict[Any, list[int]] = {}
    for key, number in Out.written:
        found.setdefault(key, []).append(number)
    return {key: total(values) for key, values in found.items()}


EXPECTED: dict[str, dict[Any, int]] = {}


def values(simulator: Simulator) -> dict[Any, int]:
    """What `count_by_key` has."""
    return {key: n for bolt in simulator.component("count_by_key-1") for key, n in bolt._values.items()}


FAULTS = st.sampled_from(["step", "step", "step", "second", "checkpoint", "abort", "unheard", "restore", "kill"])


@pytest.mark.parametrize("name", PROGRAMS)
@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(faults=st.lists(FAULTS, min_size=8, max_size=40))
@example(
    faults=[*["step"] * 4, "checkpoint", "kill", *["step"] * 3, "checkpoint", "step", "restore", "unheard", "kill"]
)
def test_nothing_is_missing_whatever_is_restored(clock: Callable[[int], None], name: str, faults: list[str]) -> None:
    if name not in EXPECTED:
        EXPECTED[name] = outcome(name, [], clock)
    expected = EXPECTED[name]
    found = outcome(name, faults, clock)
    assert found.keys() >= expected.keys()
    assert {key: n for key, n in expected.items() if found[key] < n} == {}


def test_without_faults_nothing_is_repeated(clock: Callable[[int], None]) -> None:
    assert outcome("sinks", [], clock) == dict.fromkeys(range(NUMBERS), 1)
    assert outcome("counts", [], clock) == dict.fromkeys(range(4), NUMBERS // 4)
    assert sum(outcome("operators before windows", [], clock).values()) == NUMBERS


def test_values_go_on_from_the_checkpoint(clock: Callable[[int], None]) -> None:
    with simulated(counts) as simulator:
        steps(simulator, clock, 20)
        assert Queue.acked == set(), "acks come with the commit"
        simulator.checkpoint()
        before = values(simulator)
        assert sum(before.values()) == NUMBERS
        simulator.restore(kill=True)
        assert values(simulator) == before


def test_what_is_acked_is_in_the_state_of_operators_beside_their_source(clock: Callable[[int], None]) -> None:
    with simulated(totals_beside_their_source) as simulator:

        def total() -> int:
            return sum(n for spout in simulator.component("numbers") for n in dict(spout._state_of_operators).values())

        steps(simulator, clock, 100)
        assert len(Out.written) == NUMBERS, "it is flushed, and could be acked"
        assert Queue.acked == set()
        simulator.restore(kill=True)
        steps(simulator, clock, 100)
        simulator.checkpoint()
        steps(simulator, clock, 10)
        assert Queue.acked == set(range(NUMBERS))
        simulator.restore(kill=True)
        assert total() == NUMBERS


def test_a_source_keeps_what_it_has_to_emit_again(clock: Callable[[int], None]) -> None:
    """Of a source that gives nothing twice, a rollback loses nothing."""
    with simulated(counts) as simulator:
        spouts = simulator.component("numbers")
        steps(simulator, clock, 5)
        Queue.acked.update(range(NUMBERS))  # it would give nothing any more
        simulator.restore()
        assert simulator.component("numbers") == spouts
        steps(simulator, clock, 100)
        assert sum(values(simulator).values()) == NUMBERS


def test_an_operator_beside_its_source_passes_again_what_a_rollback_has_taken_from_others(
    clock: Callable[[int], None],
) -> None:
    with simulated(counts_behind_operators) as simulator:
        steps(simulator, clock, 2)
        simulator.checkpoint()
        steps(simulator, clock, 3)
        assert sum(values(simulator).values())
        simulator.restore()
        steps(simulator, clock, 100)
        assert sum(values(simulator).values()) == NUMBERS


def test_operators_beside_their_source_see_again_what_a_rollback_has_them_forget(clock: Callable[[int], None]) -> None:
    with simulated(totals_beside_their_source) as simulator:
        for _ in range(2):  # some records are in a sink that is not flushed, and then all are done but for the commit
            steps(simulator, clock, 3)
            simulator.restore()
            steps(simulator, clock, 100)
            simulator.restore()
        simulator.checkpoint(commit=False)
        simulator.restore()
        steps(simulator, clock, 100)
        simulator.checkpoint()
        steps(simulator, clock, 10)
        assert Queue.acked == set(range(NUMBERS))
        states = [spout._state_of_operators for spout in simulator.component("numbers")]
        assert sum(n for state in states for n in dict(state).values()) == NUMBERS


def totals_before_counts(builder: Builder) -> None:
    numbers(builder).transform(Total()).count_by_key().to_sink(Out())


def test_what_is_emitted_and_not_sent_at_a_rollback_is_in_the_state_of_operators(clock: Callable[[int], None]) -> None:
    with simulated(totals_before_counts) as simulator:
        steps(simulator, clock, 2)
        for spout in simulator.component("numbers"):
            spout.next_tuple()
        simulator.restore()
        steps(simulator, clock, 100)
        simulator.checkpoint()
        steps(simulator, clock, 10)
        assert Queue.acked == set(range(NUMBERS))
        states = [spout._state_of_operators for spout in simulator.component("numbers")]
        assert sum(n for state in states for n in dict(state).values()) == NUMBERS


def test_a_sink_that_is_away_fails_the_checkpoint_and_nothing_else(clock: Callable[[int], None]) -> None:
    with simulated(operators) as simulator:
        steps(simulator, clock, 20)
        (operator, *_) = simulator.component("divided")
        Out.reachable = False
        with pytest.raises(CheckpointError, match="component 'divided': the sink is away"):
            simulator.checkpoint()
        assert simulator.component("divided")[0] is operator
        Out.reachable = True
        steps(simulator, clock, QUIET_STEPS)
        simulator.checkpoint()
        steps(simulator, clock, 10)
        assert Queue.acked == set(range(NUMBERS))
        assert sorted(Out.written) == [(n, 1) for n in range(NUMBERS)]


def test_a_policy_that_would_lose_results_is_refused() -> None:
    with pytest.raises(ConfigError, match="policy fail"):
        simulated(windows, **{"topology.exception.policy": "fail"}).__enter__()


class Ascending(Generator):
    """Numbers, from an attribute that no state has."""

    def setup(self, context: Context) -> None:
        self.left = iter(range(NUMBERS))

    def get(self) -> Any:
        return next(self.left, None)


SEEN: list[int] = []


def see(n: int) -> None:
    SEEN.append(n)


def test_what_a_generator_has_made_comes_again_if_no_commit_covers_it(clock: Callable[[int], None]) -> None:
    def generated(builder: Builder) -> None:
        made = builder.new_source(Ascending()).set_name("made")
        made.repartition(1).set_name("apart").transform(First()).map(lambda n: (n, 1)).to_sink(Out())

    with simulated(generated) as simulator:
        committed: set[int] = set()
        for _ in range(6):
            steps(simulator, clock, 2)
            simulator.checkpoint()
            committed = {n for n, _ in Out.written}
            steps(simulator, clock, 2)
            simulator.restore()
            Out.written[:] = [(n, 1) for n in committed]  # what was written since is gone with its process
        steps(simulator, clock, QUIET_STEPS)
        simulator.checkpoint()
    assert {n for n, _ in Out.written} == set(range(NUMBERS))


def test_consumers_get_everything_again_that_no_commit_covers(clock: Callable[[int], None]) -> None:
    SEEN.clear()
    with simulated(lambda builder: numbers(builder).repartition(1).consume(see)) as simulator:
        for _ in range(5):
            steps(simulator, clock, 2)
            simulator.checkpoint()
            steps(simulator, clock, 2)
            simulator.restore(kill=True)
        steps(simulator, clock, QUIET_STEPS)
    assert set(SEEN) == set(range(NUMBERS))


def test_an_archive_has_every_element_under_one_id(clock: Callable[[int], None], tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    directory = tmp_path / "archive"
    with simulated(lambda builder: numbers(builder).archive(directory, codec="pickle").to_sink(Out())) as simulator:
        for _ in range(5):
            steps(simulator, clock, 2)
            simulator.checkpoint()
            steps(simulator, clock, 2)
            simulator.restore(kill=True)
        steps(simulator, clock, QUIET_STEPS)
        simulator.checkpoint()
        steps(simulator, clock, 10)
    rows = [row for file in directory.glob("batch=*/*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    assert len({repr(row) for row in rows}) == NUMBERS
