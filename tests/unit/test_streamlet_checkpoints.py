"""Streamlet programs effectively once: whatever is restored when, the output is that of a run without faults."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from committed_kit import OutSink, OutStore, Twice, forget, results
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heronpy.api import TopologyBuilder
from heronpy.connectors import ListSource
from heronpy.errors import CheckpointError, TopologyError
from heronpy.streamlet import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Builder,
    Config,
    Context,
    Generator,
    Streamlet,
    Sum,
    TransformOperator,
    WindowConfig,
)
from heronpy.testing import Simulator
from heronpy.windows import NEVER

STEP_MS = 20
QUIET_STEPS = 120
"""So long nothing new comes, and nothing will: longer than ticks and the grace of late panes."""


class Clock:
    """A time that only the test advances; and a directory."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = 1_000_000
        self.directory = directory

    def ns(self) -> int:
        return self.now_ms * 1_000_000


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clock]:
    made = Clock(tmp_path_factory.mktemp("job"))
    with pytest.MonkeyPatch.context() as patch:
        for module in ("_bolts", "_spout", "_task", "_window_bolts"):
            patch.setattr(f"heronpy.streamlet.{module}.now_ms", lambda: made.now_ms)
        patch.setattr("heronpy.streamlet._spout.EMIT_LIMIT", 3)
        yield made


def simulated(make: Callable[[Builder], None], clock: Clock, **keys: Any) -> Simulator:
    builder, topology, config = Builder(), TopologyBuilder("program"), Config()
    make(builder)
    for key, value in keys.items():
        config.set_user_config(key, value)
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    config.set_user_config("topology.stateful.checkpoint.interval.seconds", 3600)
    config.set_max_lateness(2)
    if make is live_views:
        config.set_pipeline(clock.directory, batch_length=10)
    builder.build(topology, config)
    return Simulator(topology, clock=clock.ns)


def outcome(make: Callable[[Builder], None], faults: Sequence[str], clock: Clock) -> Counter[Any]:
    """What the program's sinks have in the end, after this and then as many steps as it takes."""
    with begun(make, clock) as simulator:
        do: dict[str, Callable[[], object]] = {
            "step": lambda: steps(simulator, clock, 1),
            "checkpoint": simulator.checkpoint,
            "abort": lambda: simulator.checkpoint(commit=False),
            "unheard": lambda: simulator.checkpoint(tell=False),
            "restore": simulator.restore,
            "kill": lambda: simulator.restore(kill=True),
        }
        for each in faults:
            do[each]()
        steps(simulator, clock, QUIET_STEPS)
    return results()


def begun(make: Callable[[Builder], None], clock: Clock) -> Simulator:
    """The program, with sinks and views that have nothing."""
    forget()
    return simulated(make, clock)


def steps(simulator: Simulator, clock: Clock, count: int) -> None:
    for _ in range(count):
        clock.now_ms += STEP_MS
        simulator.step()


# Programs: one for each family of operators.

NUMBERS = list(range(60))
TIMES = [float(n) for n in NUMBERS]


def numbers(builder: Builder, times: Sequence[float] | None = None, partitions: int = 2) -> Streamlet:
    return builder.new_source(ListSource(NUMBERS, times=times)).set_num_partitions(partitions)


def element_by_element(builder: Builder) -> None:
    source = numbers(builder).map(lambda n: n + 1).filter(lambda n: n % 5)
    split = source.split({"odd": lambda n: n % 2, "even": lambda n: n % 2 == 0})
    left, right = split["odd"].repartition(3, lambda n: n % 3).clone(2)
    left.flat_map(lambda n: [n, -n]).union(right).union(split["even"]).repartition(2).to_sink(OutSink())


def sinks_beside_their_source(builder: Builder) -> None:
    numbers(builder).map(str).to_sink(OutSink())


def reductions(builder: Builder) -> None:
    pairs = numbers(builder).map(lambda n: ([n % 4], n))
    pairs.count_by_key().union(pairs.reduce_by_key(max).map(lambda e: (e[0], "max"))).to_sink(OutSink())


class First(TransformOperator):
    """Emits what it has not seen before, with its number."""

    def setup(self, context: Context) -> None:
        self.context, self.state = context, context.get_state()

    def transform(self, tup: Any) -> None:
        (element,) = tup.values
        if self.state.get(element) is None:
            self.state.put(element, True)
            number = self.state.get("", 0)
            self.state.put("", number + 1)
            self.context.emit([number])


def operators_with_state(builder: Builder) -> None:
    source = numbers(builder, partitions=1).map(lambda n: n % 30)
    source.transform(First()).transform(First()).to_sink(OutSink())


class Forgetful(Generator):
    """Three elements in each life."""

    def setup(self, context: Context) -> None:
        self.left = 3

    def get(self) -> Any:
        self.left -= 1
        return None if self.left < 0 else self.left


class Squares(Generator):
    stateful = True

    def setup(self, context: Context) -> None:
        self.state = context.get_state()
        self.partition, self.step = context.get_partition_index(), context.get_num_partitions()

    def get(self) -> Any:
        n = self.state.get("n", self.partition)
        if n >= len(NUMBERS):
            return None
        self.state.put("n", n + self.step)
        return n * n


def generators(builder: Builder) -> None:
    builder.new_source(Squares()).set_num_partitions(2).map(lambda n: n + 1).to_sink(OutSink())


def _window(element: Any) -> Any:
    """A pane as a part of the whole: (key, start), value."""
    window, value = element
    return (window.key, window.window.start, value) if hasattr(window, "key") else (window.start, value)


def windows(config: WindowConfig) -> Callable[[Builder], None]:
    def program(builder: Builder) -> None:
        keyed = numbers(builder, TIMES).filter(lambda n: n // 10 % 2).map(lambda n: (n % 3, 1))
        keyed.reduce_by_key_and_window(config, lambda a, b: a + b).map(_window).to_sink(OutSink())

    return program


def windows_without_keys(builder: Builder) -> None:
    source = numbers(builder, TIMES)
    small = source.reduce_by_window(WindowConfig(4, 2), lambda a, b: a + b)
    small.map(lambda e: (0, e[1])).reduce_by_key_and_window(WindowConfig(6, 6), lambda a, b: a + b).map(
        _window
    ).to_sink(OutSink())


def windows_of_arrival(builder: Builder) -> None:
    counts = numbers(builder).map(lambda n: (n % 3, 1)).count_by_key_and_window(WindowConfig(1, 1), lambda e: e[0])
    counts.flat_map(lambda e: [e[0].key] * e[1]).to_sink(OutSink())  # which window it is depends on when it came


def joins(builder: Builder) -> None:
    left = numbers(builder, TIMES).map(lambda n: (n % 4, n))
    right = numbers(builder, TIMES).filter(lambda n: n % 3 == 0).map(lambda n: (n % 4, -n))
    left.outer_join(right, WindowConfig(8, 8), lambda a, b: (a, b)).map(_window).to_sink(OutSink())


def elements_of(config: WindowConfig) -> Callable[[Builder], None]:
    """Each element of each pane by itself: how elements are divided into panes depends on when they come."""

    def program(builder: Builder) -> None:
        lists = numbers(builder, TIMES).map(lambda n: (n % 3, [n]))
        panes = lists.reduce_by_key_and_window(config, lambda a, b: a + b)
        panes.flat_map(lambda e: [(e[0].key, n) for n in e[1]]).to_sink(OutSink())

    return program


def sliding_by_number(builder: Builder) -> None:
    ones = numbers(builder, TIMES).map(lambda n: (n % 3, 1))
    sums = ones.reduce_by_key_and_window(WindowConfig.create_sliding_count_window(4, 2), lambda a, b: a + b)
    sums.map(lambda e: (e[0].key, e[1])).to_sink(OutSink())


def late_elements(builder: Builder) -> None:
    times = [n - 15.0 if n % 10 == 7 else float(n) for n in NUMBERS]
    lists = numbers(builder, times).map(lambda n: (n % 3, [n]))
    panes = lists.reduce_by_key_and_window(WindowConfig(5, 5).with_allowed_lateness(1), lambda a, b: a + b)
    timely = panes.flat_map(lambda e: [(e[0].key, n) for n in e[1]])
    timely.union(panes.late().map(lambda e: (e[0], e[1][0]))).to_sink(OutSink())


def latest_elements(builder: Builder) -> None:
    lists = numbers(builder, TIMES).map(lambda n: (n % 3, [n]))
    last = lists.reduce_by_key_and_window(WindowConfig(12, 6).keep_last(2), lambda a, b: sorted(a + b))
    within = lists.reduce_by_key_and_window(WindowConfig(12, 6).keep_within(4), lambda a, b: sorted(a + b))
    last.union(within).map(_window).to_sink(OutSink())


def joins_of_latest(builder: Builder) -> None:
    left = numbers(builder, TIMES).map(lambda n: (n % 2, n))
    right = numbers(builder, TIMES).filter(lambda n: n % 3 == 0).map(lambda n: (n % 2, -n))
    left.join(right, WindowConfig(8, 8).keep_last(4), lambda a, b: (a, b)).map(_window).to_sink(OutSink())


def live_views(builder: Builder) -> None:
    numbers(builder, TIMES).map(lambda n: (n % 3, 1)).to_store("counts", Sum(), OutStore())


PROGRAMS: dict[str, tuple[Callable[[Builder], None], int]] = {
    "elements": (element_by_element, 96),
    "sinks beside their source": (sinks_beside_their_source, 60),
    "reductions": (reductions, 120),
    "operators": (operators_with_state, 30),
    "generators": (generators, 60),
    "tumbling": (windows(WindowConfig(5, 5)), 18),
    "sliding": (windows(WindowConfig(6, 2)), 57),
    "sessions": (windows(WindowConfig.create_session_window(4)), 9),
    "without keys": (windows_without_keys, 11),
    "arrivals": (windows_of_arrival, 60),
    "joins": (joins, 60),
    "by number": (elements_of(WindowConfig.create_tumbling_count_window(5)), 60),
    "by number, sliding": (sliding_by_number, 30),
    "global": (elements_of(WindowConfig.create_global_window(AfterCount(7))), 60),
    "global by time": (elements_of(WindowConfig.create_global_window(AfterProcessingTime(50))), 60),
    "early panes": (elements_of(WindowConfig(10, 10).with_trigger(AfterWatermark(early=AfterCount(2)))), 60),
    "sessions in panes": (
        elements_of(WindowConfig.create_session_window(4).with_trigger(AfterWatermark(early=AfterProcessingTime(30)))),
        60,
    ),
    "panes by number": (
        elements_of(WindowConfig(10, 5).with_trigger(AfterCount(3)).with_allowed_lateness(2)),
        120,
    ),
    "late elements": (late_elements, 60),
    "evictors": (latest_elements, 66),
    "joins of the latest": (joins_of_latest, 44),
    "live views": (live_views, 60),
}
"""With the number of their results."""


@functools.cache
def without_faults(name: str, clock: Clock) -> Counter[Any]:
    return outcome(PROGRAMS[name][0], [], clock)


FAULTS = st.sampled_from(["step", "step", "step", "checkpoint", "abort", "unheard", "restore", "kill"])


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=st.lists(FAULTS, min_size=8, max_size=60))
def test_the_output_is_that_of_a_run_without_faults(clock: Clock, name: str, faults: list[str]) -> None:
    expected = without_faults(name, clock)
    assert expected.total() == PROGRAMS[name][1]
    assert outcome(PROGRAMS[name][0], faults, clock) == expected


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"operators", "generators"}))
def test_the_output_is_the_same_with_other_numbers_of_tasks(clock: Clock, name: str) -> None:
    program = PROGRAMS[name][0]
    expected = without_faults(name, clock)
    with begun(program, clock) as simulator:
        components = simulator.plan.logical.components
        usual = {name: spec.parallelism for name, spec in components.items() if not name.startswith("reduce_by_window")}
        for tasks in ({name: number + 1 for name, number in usual.items()}, usual):
            steps(simulator, clock, 30)
            simulator.drain()
            simulator.checkpoint()
            simulator.restore(tasks)
            assert {name: len(simulator.component(name)) for name in usual} == tasks
        steps(simulator, clock, QUIET_STEPS)
    assert results() == expected


def test_an_archive_has_every_element_and_a_restore_repeats_only_what_has_the_same_id(clock: Clock) -> None:
    pq = pytest.importorskip("pyarrow.parquet")

    def archiving(builder: Builder) -> None:
        numbers(builder, TIMES).archive(clock.directory / "archive", codec="pickle").to_sink(OutSink())

    with begun(archiving, clock) as simulator:
        steps(simulator, clock, 3)
        simulator.checkpoint()
        steps(simulator, clock, 2)
        simulator.checkpoint(commit=False)  # writes what is read again
        simulator.restore(kill=True)
        steps(simulator, clock, QUIET_STEPS)
    assert results() == Counter(map(repr, NUMBERS))
    files = (clock.directory / "archive").glob("batch=*/*.parquet")
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert len(rows) > len(NUMBERS)
    assert len({repr(row) for row in rows}) == len(NUMBERS)


def test_windows_fire_once_though_the_watermark_goes_back(clock: Clock) -> None:
    """As after a restore, until all tasks upstream have said again how far they are."""
    program = PROGRAMS["sliding"][0]
    with begun(program, clock) as simulator:
        while not any(bolt.upstream.low > 30_000 for bolt in simulator.component("reduce_by_key_and_window-1")):
            steps(simulator, clock, 1)
        for bolt in simulator.component("reduce_by_key_and_window-1"):
            for task in simulator.plan.component_tasks["source-1"]:
                bolt.receive_watermark(task, NEVER)
        simulator.checkpoint()
        simulator.restore()
        steps(simulator, clock, QUIET_STEPS)
    assert results() == without_faults("sliding", clock)


def test_a_source_without_positions_is_read_if_it_may_lose_what_is_in_flight() -> None:
    forget()
    builder, config, topology = Builder(), Config(), TopologyBuilder("program")
    builder.new_source(Forgetful()).to_sink(OutSink())
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    config.set_user_config("topology.state.allow.lossy.spouts", True)
    builder.build(topology, config)
    with Simulator(topology) as simulator:
        for _ in range(5):
            simulator.step()
    assert results() == Counter(["2", "1", "0"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda b: b.new_source(lambda: 1).log(),
            "source-1 cannot be effectively once: <.*> has no positions",
        ),
        (
            lambda b: b.new_source(Forgetful()).log(),
            "source-1 cannot be .*: a generator must have all .* in its state",
        ),
        (
            lambda b: numbers(b).map(lambda n: (n, n)).to_store("sums", Sum(), Twice()),
            "store-1 cannot be effectively once: view sums: .* has no commit_once",
        ),
    ],
)
def test_what_cannot_be_exact_is_refused_with_its_name(make: Callable[[Builder], None], message: str) -> None:
    builder, config = Builder(), Config()
    make(builder)
    config.set_pipeline("/tmp")
    builder.build(TopologyBuilder("program"), config)
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    with pytest.raises(TopologyError, match=message):
        builder.build(TopologyBuilder("program"), config)


class Remembering(TransformOperator):
    """Counts its elements."""

    def setup(self, context: Context) -> None:
        self.state, self.emit = context.get_state(), context.emit

    def transform(self, tup: Any) -> None:
        self.state.put("count", self.state.get("count", 0) + 1)
        self.emit([self.state.get("count")])


def test_state_of_an_operator_that_is_not_there_any_more_is_refused_or_dropped(clock: Clock) -> None:
    def program(name: str) -> Callable[[Builder], None]:
        return lambda builder: numbers(builder, partitions=1).transform(Remembering()).set_name(name).to_sink(OutSink())

    with begun(program("before"), clock) as first:
        steps(first, clock, QUIET_STEPS)
        first.checkpoint()

        def successor(**keys: Any) -> Simulator:
            made = simulated(program("after"), clock, **keys)
            made._checkpoints = first._checkpoints
            made.restore(kill=True)
            return made

        with pytest.raises(
            CheckpointError, match=r"component 'source-1': .* state of operators 'before', which it does"
        ):
            successor()
        (spout,) = successor(**{"topology.state.allow.dropped": True}).component("source-1")
        assert not spout._state_of_operators
