"""Every operation of the functional API, as a topology in the simulator: fused and not, acked and not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hostile_objects import Silent
from streamlet_kit import ACKED, WRITTEN, ListSink, ListSource, ListWriter, config, outcome, run, topology

from heronpy.connectors import SinkContext, SinkWriter
from heronpy.errors import ConfigError, TopologyError, UnavailableError
from heronpy.packing import RoundRobinPacking
from heronpy.plan import PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.streamlet import (
    AfterCount,
    AfterWatermark,
    Builder,
    Config,
    Context,
    KeyedWindow,
    TransformOperator,
    Window,
    WindowConfig,
)
from heronpy.streamlet.parts import SourceSpout, StageBolt
from heronpy.testing import Simulator
from heronpy.windows import NEVER

NUMBERS = list(range(25))


class Twice(TransformOperator):
    def setup(self, context: Context) -> None:
        self.context = context
        assert context.get_num_partitions() >= 1
        assert context.get_stream_name()

    def transform(self, tup: Any) -> None:
        self.context.emit([tup.values[0]])
        self.context.emit([-tup.values[0]])


@pytest.fixture(autouse=True)
def swift_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StageBolt, "commit_every_ms", 10)
    monkeypatch.setattr("heronpy.streamlet._spout.FLUSH_EVERY_MS", 10)
    monkeypatch.setattr("heronpy.streamlet._spout.CHORES_EVERY_MS", 5)
    monkeypatch.setattr("heronpy.streamlet._task.WATERMARK_EVERY_MS", 10)


@pytest.fixture(params=[(True, True), (False, True), (True, False), (False, False)], ids=str)
def mode(request: pytest.FixtureRequest) -> Config:
    fusion, acked = request.param
    return config(fusion=fusion, at_least_once=acked)


Make = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda s: s.map(lambda n: n * n), [n * n for n in NUMBERS]),
        (lambda s: s.filter(lambda n: n % 3 == 0), [n for n in NUMBERS if n % 3 == 0]),
        (lambda s: s.filter(lambda n: False), []),
        (lambda s: s.flat_map(lambda n: range(n % 4)), [i for n in NUMBERS for i in range(n % 4)]),
        (lambda s: s.transform(Twice()), [i for n in NUMBERS for i in (n, -n)]),
        (lambda s: s.key_by(lambda n: n % 2, str), [(n % 2, str(n)) for n in NUMBERS]),
        (lambda s: s.split({"odd": lambda n: n % 2})["odd"], NUMBERS[1::2]),
        (lambda s: s.repartition(3), NUMBERS),
        (lambda s: s.repartition(3, lambda n: n % 3), NUMBERS),
        (lambda s: s.repartition(3, lambda n: [0, 2] if n % 2 else []), sorted([*NUMBERS[1::2], *NUMBERS[1::2]])),
        (lambda s: s.union(s), [*NUMBERS, *NUMBERS]),
        (lambda s: s.union(s.map(lambda n: -n)), [i for n in NUMBERS for i in (n, -n)]),
        (lambda s: s.clone(2)[0].union(s.clone(1)[0]), [*NUMBERS, *NUMBERS]),
        (lambda s: s.set_num_partitions(2).map(str).set_num_partitions(3), [str(n) for n in NUMBERS]),
        (
            lambda s: s.map(lambda n: (n % 2, n)).reduce_by_key(lambda a, b: a + b),
            [(i, sum(NUMBERS[i : n + 1 : 2])) for n in NUMBERS for i in [n % 2]],
        ),
        (lambda s: s.count_by_key(lambda n: n % 2), [(n % 2, n // 2 + 1) for n in NUMBERS]),
        (lambda s: s.map(lambda n: (n % 2, n)).count_by_key(), [(n % 2, n // 2 + 1) for n in NUMBERS]),
    ],
)
def test_an_operation_gives_its_elements(mode: Config, make: Make, expected: list[Any]) -> None:
    def program(builder: Builder) -> int:
        make(builder.new_source(ListSource("in", NUMBERS))).to_sink(ListSink())
        return len(NUMBERS)

    assert outcome(program, mode, len(expected)) == sorted(expected, key=repr)


TIMES = [n * 400 for n in NUMBERS]
"""25 elements in 10 s."""


def tumbling(n: int) -> Window:
    return Window(n * 2.0, n * 2.0 + 2)


def test_a_window_has_all_elements_of_its_time(mode: Config) -> None:
    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", NUMBERS, TIMES))
        numbers.reduce_by_window(WindowConfig(2, 2), lambda a, b: a + b).to_sink(ListSink())
        return len(NUMBERS)

    sums = [(tumbling(w), sum(n for n in NUMBERS if n // 5 == w)) for w in range(5)]
    assert outcome(program, mode, len(sums)) == sorted(sums, key=repr)


def test_a_key_has_a_value_in_each_of_its_sliding_windows(mode: Config) -> None:
    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", NUMBERS, TIMES)).set_num_partitions(2)
        counts = numbers.count_by_key_and_window(WindowConfig(4, 2), lambda n: n % 2)
        counts.to_sink(ListSink())
        return len(NUMBERS)

    expected = []
    for start in range(-2, 10, 2):
        inside = [n for n, t in zip(NUMBERS, TIMES, strict=True) if start * 1000 <= t < start * 1000 + 4000]
        window = Window(float(start), float(start + 4))
        expected += [
            (KeyedWindow(k, window), sum(n % 2 == k for n in inside)) for k in (0, 1) if any(n % 2 == k for n in inside)
        ]
    assert outcome(program, mode, len(expected)) == sorted(expected, key=repr)


def test_event_times_come_from_elements(mode: Config) -> None:
    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", NUMBERS)).event_time(lambda n: n * 0.4)
        numbers.reduce_by_window(WindowConfig(2, 2), lambda a, b: a + b).to_sink(ListSink())
        return len(NUMBERS)

    sums = [(tumbling(w), sum(n for n in NUMBERS if n // 5 == w)) for w in range(5)]
    assert outcome(program, mode, len(sums)) == sorted(sums, key=repr)


@pytest.mark.parametrize("half", [0.5, timedelta(milliseconds=500)], ids=str)
def test_windows_may_be_shorter_than_a_second(mode: Config, half: Any) -> None:
    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", NUMBERS, TIMES))
        sliding = WindowConfig.create_sliding_window(1, half)
        tumbling = numbers.reduce_by_window(WindowConfig.create_tumbling_window(half), lambda a, b: a + b)
        tumbling.union(numbers.reduce_by_window(sliding, lambda a, b: a + b)).to_sink(ListSink())
        return len(NUMBERS)

    expected = [
        (Window(start / 1000, (start + length) / 1000), sum(inside))
        for length in (500, 1000)
        for start in range(-500, 10_000, 500)
        if (inside := [n for n in NUMBERS if start <= n * 400 < start + length])
    ]
    assert outcome(program, mode, len(expected)) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    "duration", [0, -1, 0.0001, 0.0005, True, "1", float("nan"), float("inf"), timedelta(microseconds=1500)], ids=str
)
def test_a_duration_of_a_part_of_a_millisecond_is_refused(duration: Any) -> None:
    for create in (WindowConfig.create_tumbling_window, WindowConfig.create_session_window):
        with pytest.raises(ConfigError, match=r"a (window's duration|session's gap) must be"):
            create(duration)


def test_a_window_config_shows_what_it_was_made_of() -> None:
    # Unnamed operators of a checkpoint are told apart by it.
    assert repr(WindowConfig(timedelta(minutes=1), 0.1)) == "WindowConfig(60, 0.1)"
    assert repr(WindowConfig.create_session_window(1.5)) == "WindowConfig.create_session_window(1.5)"


def test_windows_of_windows(mode: Config) -> None:
    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", NUMBERS, TIMES)).set_num_partitions(2)
        small = numbers.count_by_key_and_window(WindowConfig(2, 2), lambda n: n % 3)
        small.map(lambda e: e[1]).reduce_by_window(WindowConfig(4, 4), lambda a, b: a + b).to_sink(ListSink())
        return len(NUMBERS)

    assert [n for _, n in outcome(program, mode, 3)] == [10, 10, 5]


def test_a_session_has_the_elements_of_a_key_with_no_gap_between_them(mode: Config) -> None:
    times = [0, 500, 1400, 5000, 5900, 9000, 700]
    elements = [("a", 1), ("b", 2), ("a", 4), ("a", 8), ("a", 16), ("b", 32), ("a", 64)]

    def program(builder: Builder) -> int:
        pairs = builder.new_source(ListSource("in", elements, times)).set_num_partitions(2)
        sessions = pairs.reduce_by_key_and_window(WindowConfig.create_session_window(1), lambda a, b: a + b)
        sessions.to_sink(ListSink())
        return len(elements)

    expected = [("a", 0, 2.4, 1 + 4 + 64), ("a", 5, 6.9, 8 + 16), ("b", 0.5, 1.5, 2), ("b", 9, 10, 32)]
    found = outcome(program, mode, len(expected))
    assert found == sorted([(KeyedWindow(k, Window(start, end)), n) for k, start, end, n in expected], key=repr)


def test_an_element_far_in_the_future_makes_no_other_late(mode: Config) -> None:
    times = [*TIMES[:10], 10**13, *TIMES[10:]]
    elements = [*NUMBERS[:10], 1000, *NUMBERS[10:]]

    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", elements, times))
        numbers.reduce_by_window(WindowConfig(2, 2), lambda a, b: a + b).to_sink(ListSink())
        return len(elements)

    sums = [(tumbling(w), sum(n for n in NUMBERS if n // 5 == w)) for w in range(5)]
    assert outcome(program, mode, 6) == sorted([*sums, (tumbling(5 * 10**9), 1000)], key=repr)


def test_nobody_waits_for_tasks_that_an_update_has_removed() -> None:
    builder = Builder()
    source = builder.new_source(ListSource("in", NUMBERS, TIMES)).set_num_partitions(2).set_name("source")
    source.reduce_by_window(WindowConfig(2, 2), lambda a, b: a + b).set_name("windows").to_sink(ListSink())
    with Simulator(topology(builder, config())) as simulator:
        (bolt,) = simulator.component("windows")
        logical, packing = simulator.plan.logical, simulator.plan.packing

        def update(tasks: int, change: int) -> list[int]:
            nonlocal packing
            changed = logical.with_parallelism({"source": tasks})
            packing = RoundRobinPacking(changed).repack(packing, {"source": change})
            plan = PhysicalPlan(2, changed, packing, ())
            bolt.task.context.replan(plan)
            return list(plan.component_tasks["source"])

        bolt.receive_watermark(simulator.plan.component_tasks["source"][0], 5000)
        assert bolt.upstream.low == NEVER
        (left,) = update(1, -1)
        bolt.receive_watermark(left, 6000)
        assert bolt.upstream.low == 6000
        _, added = update(2, +1)
        bolt.receive_watermark(left, 7000)
        assert bolt.upstream.low == NEVER
        bolt.receive_watermark(added, 6500)
        assert bolt.upstream.low == 6500


LEFT, RIGHT = [(1, "a"), (2, "b"), (1.0, "c"), (5, "d")], [(1, "x"), (3, "y"), (1, "z"), (5, "w")]
JOIN_TIMES = [0, 500, 900, 1500]


@pytest.mark.parametrize(
    ("method", "lonely"),
    [
        ("join", []),
        ("outer_left_join", [(2, "b", None)]),
        ("outer_right_join", [(3, None, "y")]),
        ("outer_join", [(2, "b", None), (3, None, "y")]),
    ],
)
def test_joins_pair_equal_keys(mode: Config, method: str, lonely: list[Any]) -> None:
    def program(builder: Builder) -> int:
        left = builder.new_source(ListSource("left", LEFT, JOIN_TIMES))
        right = builder.new_source(ListSource("right", RIGHT, JOIN_TIMES))
        joined = getattr(left, method)(right, WindowConfig(1, 1), lambda a, b: (a, b))
        joined.map(lambda e: (e[0].key, *e[1])).to_sink(ListSink())
        return len(LEFT) + len(RIGHT)

    pairs = [(1, "a", "x"), (1, "a", "z"), (1, "c", "x"), (1, "c", "z"), (5, "d", "w")]
    expected = sorted([*pairs, *lonely], key=repr)
    assert sorted(outcome(program, mode, len(expected)), key=repr) == expected


def test_a_streamlet_can_be_joined_with_itself(mode: Config) -> None:
    def program(builder: Builder) -> int:
        left = builder.new_source(ListSource("in", LEFT, JOIN_TIMES))
        left.join(left, WindowConfig(1, 1), lambda a, b: a + b).map(lambda e: e[1]).to_sink(ListSink())
        return len(LEFT)

    expected = sorted(["aa", "ac", "ca", "cc", "bb", "dd"], key=repr)
    assert outcome(program, mode, len(expected)) == expected


def test_without_event_times_windows_are_of_the_arrival(mode: Config) -> None:
    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", NUMBERS))
        numbers.reduce_by_window(WindowConfig(1, 1), lambda a, b: a + b).to_sink(ListSink())
        return len(NUMBERS)

    builder = Builder()
    program(builder)
    run(builder, mode, until=lambda: sum(value for _, value in WRITTEN["out"]) == sum(NUMBERS))
    for window, _ in WRITTEN["out"]:
        assert window.end - window.start == 1


def test_order_is_kept_in_one_task(mode: Config) -> None:
    builder = Builder()
    builder.new_source(ListSource("in", NUMBERS)).map(lambda n: n + 1).to_sink(ListSink())
    run(builder, mode, until=lambda: len(WRITTEN["out"]) == len(NUMBERS))
    assert all(a < b for a, b in pairwise(WRITTEN["out"]))


def consumed(element: Any) -> None:
    WRITTEN["consumed"].append(element)


def test_consume_and_log_take_every_element(mode: Config, caplog: pytest.LogCaptureFixture) -> None:
    WRITTEN["consumed"] = []
    builder = Builder()
    source = builder.new_source(ListSource("in", NUMBERS))
    source.consume(consumed)
    source.log()
    with caplog.at_level("INFO"):
        run(builder, mode, until=lambda: len(WRITTEN["consumed"]) == len(ACKED["in"]) == len(NUMBERS))
    assert sorted(WRITTEN["consumed"]) == NUMBERS
    assert {str(n) for n in NUMBERS} <= {record.message for record in caplog.records}


def test_fusion_makes_one_component_of_neighbours() -> None:
    builder = Builder()
    chain = builder.new_source(ListSource("in", NUMBERS)).map(str).filter(bool).flat_map(str.split)
    chain.to_sink(ListSink())
    with Simulator(topology(builder, config())) as simulator:
        assert [type(task.user_object) for task in simulator.tasks.values()] == [SourceSpout]
    with Simulator(topology(builder, config(fusion=False))) as simulator:
        names = set(simulator.plan.logical.components)
    assert names == {"source-1", "map-1", "filter-1", "flatmap-1", "sink-1"}


def fails_at_7(number: int) -> int:
    if number == 7:
        raise ValueError("seven")
    return number


def test_an_element_that_fails_is_set_aside_where_there_is_a_job(tmp_path: Path) -> None:
    for fusion in (True, False):

        def program(builder: Builder) -> int:
            builder.new_source(ListSource("in", NUMBERS)).map(fails_at_7).set_name("careful").to_sink(ListSink())
            return len(NUMBERS)

        settings = config(fusion=fusion)
        settings.set_pipeline(tmp_path / str(fusion))
        assert outcome(program, settings, 24) == sorted([n for n in NUMBERS if n != 7], key=repr)
        letters = "".join(p.read_text() for p in (tmp_path / str(fusion) / "dead-letter").rglob("*") if p.is_file())
        assert "careful" in letters
        assert "ValueError: seven" in letters


@pytest.mark.parametrize("element", [5, (1, 2, 3), (Builder(), 1), Silent()])
def test_what_is_no_pair_cannot_be_keyed(tmp_path: Path, element: Any) -> None:
    def program(builder: Builder) -> int:
        source = builder.new_source(ListSource("in", [(1, 1)])).map(lambda _: element)
        source.reduce_by_key(max).set_num_partitions(2).to_sink(ListSink())
        return 1

    settings = config()
    settings.set_pipeline(tmp_path)
    assert outcome(program, settings, 0) == []
    assert list((tmp_path / "dead-letter").iterdir())


def test_without_a_job_the_exception_policy_decides() -> None:
    from heronpy.instance.task import TaskFailed

    builder = Builder()
    builder.new_source(ListSource("in", NUMBERS)).map(fails_at_7).to_sink(ListSink())
    with pytest.raises(TaskFailed):
        run(builder, config(), until=lambda: False)


def lossy(share: int) -> Callable[[Any], bool]:
    count = 0

    def lose(batch: Any) -> bool:
        nonlocal count
        count += 1
        return count % share == 0 and count < 20

    return lose


@pytest.mark.parametrize("fusion", [True, False])
def test_what_is_lost_is_sent_again(fusion: bool) -> None:
    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", NUMBERS))
        numbers.flat_map(lambda n: [n, n + 100]).repartition(2).to_sink(ListSink())
        numbers.repartition(3).to_sink(ListSink("other"))
        return len(NUMBERS)

    settings = config(fusion=fusion, topology_message_timeout_secs=1)
    written = outcome(program, settings, 2 * len(NUMBERS), lose=lossy(3))
    assert set(written) == {*NUMBERS, *(n + 100 for n in NUMBERS)}
    assert set(WRITTEN["other"]) == set(NUMBERS)


EARLY = WindowConfig(2, 2).with_trigger(AfterWatermark(early=AfterCount(2)))


@pytest.mark.parametrize(
    ("window", "lossy"),
    [
        (WindowConfig(2, 2), "map-1:"),
        (WindowConfig(4, 2), "map-1:"),
        (EARLY, "map-1:"),
        (WindowConfig(2, 2), "reduce_by_key_and_window-1:"),
        (EARLY, "reduce_by_key_and_window-1:"),
    ],
    ids=repr,
)
def test_windows_are_exact_after_losses(window: WindowConfig, lossy: str) -> None:
    # Sent again, elements find their window past, and make a pane of their own: the parts add up.
    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", NUMBERS, TIMES))
        pairs = numbers.repartition(2).map(lambda n: (n % 2, n))
        sums = pairs.reduce_by_key_and_window(window, lambda a, b: a + b).repartition(2)
        sums.map(lambda e: (e[0].window, e[1])).to_sink(ListSink())
        return len(NUMBERS)

    lost: set[str] = set()

    def lose_first_elements(batch: Any) -> bool:
        if batch.kind != stmgr_pb2.Batch.DATA or lost:
            return False
        stream = stmgr_pb2.TupleBatch.FromString(batch.body).stream
        if stream.startswith(lossy):
            lost.add(stream)
        return bool(lost)

    settings = config(topology_message_timeout_secs=2)
    sums: dict[Window, int] = {}
    for span, value in outcome(program, settings, 5, lose=lose_first_elements):
        sums[span] = sums.get(span, 0) + value
    assert lost
    starts = range(2 - window.duration_ms // 1000, 10, 2)
    length = window.duration_ms / 1000
    assert sums == {
        Window(float(at), at + length): sum(n for n in NUMBERS if at <= n * 0.4 < at + length) for at in starts
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: None, "no source"),
        (lambda b: b.new_source(ListSource("a", [])).archive().set_name("keep"), "keep .*set_pipeline"),
        (
            lambda b: (
                b.new_source(ListSource("a", []))
                .union(b.new_source(ListSource("b", [])))
                .archive("/nowhere")
                .set_name("keep")
            ),
            "keep archives what union-1",
        ),
        (
            lambda b: b.new_source(ListSource("a", [])).count_by_key().archive("/nowhere").set_name("keep"),
            "keep archives what count_by_key-1",
        ),
        (
            lambda b: b.new_source(ListSource("a", [])).union(Builder().new_source(ListSource("b", []))),
            "another Builder",
        ),
    ],
)
def test_an_impossible_program_is_refused(make: Make, message: str) -> None:
    builder = Builder()
    make(builder)
    with pytest.raises(TopologyError, match=message):
        topology(builder, config())


class Shaky(ListSink):
    """Cannot be reached the first times."""

    def open(self, context: SinkContext) -> SinkWriter:
        return ShakyWriter(self.name)


class ShakyWriter(ListWriter):
    flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        if self.waiting and self.flushes < 5:
            raise UnavailableError("the sink does not answer")
        super().flush()


@pytest.mark.parametrize("in_spout", [True, False])
def test_a_sink_that_cannot_be_reached_is_tried_again_and_loses_nothing(mode: Config, in_spout: bool) -> None:
    def program(builder: Builder) -> int:
        numbers = builder.new_source(ListSource("in", NUMBERS))
        (numbers if in_spout else numbers.repartition(2)).to_sink(Shaky("out"))
        return len(NUMBERS)

    assert sorted(outcome(program, mode, len(NUMBERS))) == NUMBERS
