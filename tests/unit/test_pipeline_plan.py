"""What a batch job computes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.connectors import Sink, Source, SourceContext, SourceReader
from heronpy.connectors.spi import SinkContext, SinkWriter
from heronpy.errors import StateError, TopologyError
from heronpy.pipeline import Job
from heronpy.pipeline.manifest import MANIFEST_FILE, Batch, Manifest, Parts
from heronpy.pipeline.pending import can_resume, committed_watermark, decide, grouped
from heronpy.pipeline.plan import BatchPlan, only_live, plan_batch
from heronpy.pipeline.reductions import window_groups
from heronpy.stores import RedisStore
from heronpy.streamlet import AfterCount, AfterWatermark, Builder, Config, Streamlet, Sum, WindowConfig
from heronpy.streamlet.runner import Program
from heronpy.streamlet.windows import window_starts


class Events(Source):
    timed = True

    def open(self, context: SourceContext) -> SourceReader:
        raise NotImplementedError


class Files(Events):
    def splits(self, target_bytes: int) -> list[Any]:
        return []


class Untimed(Files):
    timed = False


class StreamSink(Sink):
    def open(self, context: SinkContext) -> SinkWriter:
        raise NotImplementedError


def plus(a: Any, b: Any) -> Any:
    return a + b


def planned(define: Callable[[Builder], Any]) -> BatchPlan:
    builder = Builder()
    define(builder)
    config = Config()
    config.set_pipeline(Path("/nowhere"))
    return plan_batch(Job.of(Program("program", config, builder.graph)))


def test_tasks_are_not_sent_where_live_views_are() -> None:
    live = RedisStore("redis://user:password@host/0")
    plan = planned(lambda builder: builder.new_source(Files()).archive().to_store("counts", Sum(), live))
    assert b"password" not in cloudpickle.dumps(plan)


def test_what_is_beside_an_archive_is_read_from_it_and_what_is_before_it_is_not_run() -> None:
    def define(builder: Builder) -> None:
        parsed = builder.new_source(Events()).map(str)
        parsed.key_by(len).to_store("beside", Sum())
        parsed.archive().key_by(len).to_store("behind", Sum())

    plan = planned(define)
    assert plan.inputs == ["archive-1"]
    assert "source-1" not in plan.nodes
    assert "map-1" not in plan.nodes
    assert {child for child, _ in plan.feeds["archive-1"]} == {"key_by-1", "key_by-2"}


def test_lookbacks_add_up_along_a_path() -> None:
    def define(builder: Builder) -> None:
        pairs = builder.new_source(Events()).archive().key_by(len)
        ten = pairs.reduce_by_key_and_window(WindowConfig(10, 10), plus)
        ten.reduce_by_window(WindowConfig(20, 5), plus).key_by(len).to_store("view", Sum())
        pairs.to_store("plain", Sum())

    plan = planned(define)
    assert plan.lookback_ms == 30_000
    assert plan.reach_ms == 30_000
    assert plan.depth == 3
    assert plan.levels["store-2"] == 1


def test_an_unwindowed_reduction_needs_everything_or_what_was_kept_of_it() -> None:
    plan = planned(lambda b: b.new_source(Events()).archive().count_by_key(len).to_store("view", Sum()))
    assert plan.lookback_ms is None
    assert plan.reach_ms == 0
    assert plan.partials == {"count_by_key-1": "~count_by_key-1"}
    assert plan.levels["~count_by_key-1"] == 2
    assert plan.resumed().lookback_ms == 0
    assert plan.resumed().begins("count_by_key-1", 7) == 7
    assert plan.begins("count_by_key-1", 7) is None


def test_a_reduction_that_is_resumed_begins_with_whole_batches() -> None:
    def define(builder: Builder) -> None:
        pairs = builder.new_source(Events()).archive().key_by(len)
        before = pairs.reduce_by_key_and_window(WindowConfig(7, 7), plus).map(lambda pair: (pair[0].key, pair[1]))
        after = before.reduce_by_key(plus).set_name("all").reduce_by_key_and_window(WindowConfig(15, 15), plus)
        after.map(lambda pair: (pair[0].key, pair[1])).to_store("view", Sum())

    plan = planned(define).resumed()
    assert plan.begins("all", 100) == 100 - -(-15_000 // plan.batch_length_ms)
    assert plan.lookback_ms == -(-15_000 // plan.batch_length_ms) * plan.batch_length_ms + 7_000


def test_sessions_begin_with_those_that_were_open_and_need_everything_without() -> None:
    def define(builder: Builder) -> None:
        pairs = builder.new_source(Events()).archive().key_by(len)
        sessions = pairs.reduce_by_key_and_window(WindowConfig.create_session_window(10), plus).set_name("s")
        again = sessions.map(lambda pair: (pair[0].key, pair[1])).reduce_by_key_and_window(WindowConfig(15, 15), plus)
        again.map(lambda pair: (pair[0].key, pair[1])).to_store("view", Sum())

    plan = planned(define)
    assert plan.lookback_ms is None
    assert plan.resumed().lookback_ms == -(-15_000 // plan.batch_length_ms) * plan.batch_length_ms
    assert plan.resumed().begins("s", 100) == 100 - -(-15_000 // plan.batch_length_ms)
    assert plan.reach_ms == 25_000, "a session ends so long after its last element"
    assert plan.kept == {"s": plan.opens["s"]}


def test_joined_sessions_begin_with_the_elements_of_those_that_were_open() -> None:
    def define(builder: Builder) -> None:
        pairs = builder.new_source(Events()).archive().key_by(len)
        gap = WindowConfig.create_session_window(10)
        joined = pairs.join(pairs, gap, plus).set_name("j").map(lambda pair: (pair[0].key, pair[1]))
        joined.reduce_by_key_and_window(WindowConfig(15, 15), plus).to_store("view", Sum())

    plan = planned(define)
    assert plan.lookback_ms is None
    assert plan.resumed().lookback_ms == -(-15_000 // plan.batch_length_ms) * plan.batch_length_ms
    assert plan.kept == {"j": plan.opens["j"]}


@pytest.mark.parametrize("how", ["reduced", "joined"])
def test_two_operators_on_sessions_that_nothing_tells_apart_are_refused(how: str) -> None:
    def define(builder: Builder) -> None:
        pairs = builder.new_source(Events()).archive().key_by(len)
        gap = WindowConfig.create_session_window(10)
        one, other = (
            pairs.reduce_by_key_and_window(gap, function) if how == "reduced" else pairs.join(pairs, gap, function)
            for function in (plus, max)
        )
        one.union(other).map(lambda pair: (pair[0].key, pair[1])).to_store("view", Sum())

    with pytest.raises(TopologyError, match="one could go on with the open sessions of the other; call set_name"):
        planned(define)


def test_what_a_batch_job_cannot_do_is_left_out_and_all_else_is_computed() -> None:
    def define(builder: Builder) -> None:
        events = builder.new_source(Events()).archive().key_by(len)
        events.to_store("counts", Sum())
        builder.new_source(Untimed()).count_by_key_and_window(WindowConfig(10, 10), len).to_store("arrived", Sum())
        events.to_sink(StreamSink(), name="elsewhere")
        events.map(str).consume(print)

    plan = planned(define)
    assert list(plan.stores()) == ["counts"]
    assert plan.left_out.keys() == {"arrived"}
    assert {line.partition(": ")[0] for line in plan.notes} == {
        "view arrived has no batch side",
        "elsewhere cannot run in batch",
        "consume-1 cannot run in batch",
    }
    assert all("cannot run in batch: " in line for line in plan.notes)


def test_a_program_with_an_archive_says_what_of_it_is_live_only() -> None:
    def lines(define: Callable[[Builder], Any]) -> list[str]:
        builder = Builder()
        define(builder)
        config = Config()
        config.set_pipeline(Path("/nowhere"))
        return only_live(Job.of(Program("program", config, builder.graph)))

    def arrived(builder: Builder) -> None:
        counts = builder.new_source(Untimed()).archive().count_by_key_and_window(WindowConfig(10, 10), len)
        counts.to_store("v", Sum())

    (line,) = lines(arrived)
    assert line.startswith("nothing of program is computed in batch: count_by_key_and_window-1 cannot run in batch")
    assert "give its elements event times with event_time() before it" in line
    assert lines(lambda b: b.new_source(Events()).archive().to_store("v", Sum())) == []
    assert lines(lambda b: b.new_source(Events()).archive()) == []
    assert lines(lambda b: b.new_source(Events()).to_store("v", Sum())) == [], "it has none, so wants no batch side"


def test_a_log_is_left_out() -> None:
    def define(builder: Builder) -> None:
        lines = builder.new_source(Files())
        lines.map(str).log()
        lines.key_by(len).to_store("view", Sum())

    plan = planned(define)
    assert plan.notes == ["log-1 is left out: log() is for topologies"]
    assert "map-1" not in plan.nodes


def consumed(s: Streamlet) -> None:
    s.map(str).consume(print)


def windowed(s: Streamlet) -> None:
    s.count_by_key_and_window(WindowConfig(10, 10)).to_store("v", Sum())


def reduced(window: WindowConfig) -> Callable[[Streamlet], None]:
    return lambda s: s.event_time(float).count_by_key_and_window(window, len).to_store("v", Sum())


def late_beside_others(s: Streamlet) -> None:
    times = s.event_time(float)
    counts = times.reduce_by_window(WindowConfig(10, 10).with_allowed_lateness(5), max)
    counts.union(counts.late()).key_by(len).to_store("v", Sum())


def view_of_late(s: Streamlet) -> None:
    counts = s.event_time(float).reduce_by_window(WindowConfig(10, 10).with_allowed_lateness(5), max)
    counts.late().key_by(len).to_store("late", Sum())  # a batch run would take it for what there was until then


def sunk(s: Streamlet) -> None:
    s.to_sink(StreamSink())


def retimed(s: Streamlet) -> None:
    s.archive().event_time(float).to_store("v", Sum())


def logged(s: Streamlet) -> None:
    s.log()


def stored(s: Streamlet) -> None:
    s.to_store("v", Sum())


@pytest.mark.parametrize(
    ("source", "define", "message"),
    [
        (Files(), consumed, "consume-1 cannot run in batch: consume"),
        (Untimed(), windowed, "count_by_key_and_window-1 cannot run in batch: its windows are made of arrival times"),
        (Files(), reduced(WindowConfig.create_tumbling_count_window(5)), "-1 cannot run in batch: windows by number"),
        (Untimed(), reduced(WindowConfig.create_global_window(AfterCount(5))), "-1 cannot run in batch: windows by"),
        (Files(), reduced(WindowConfig(1, 1).with_trigger(AfterWatermark())), "-1 cannot run in batch: its trigger"),
        (Files(), reduced(WindowConfig(1, 1).keep_last(2)), "-1 cannot run in batch: its evictor"),
        (Files(), late_beside_others, "late-1 cannot run in batch: nothing is late"),
        (Files(), view_of_late, "late-1 cannot run in batch: nothing is late"),
        (Events(), stored, "source-1 cannot be read in batch: Events has no past"),
        (Files(), sunk, "sink-1 cannot run in batch: StreamSink only takes streams"),
        (Files(), retimed, "event_time-1 gives new times to what archive-1 has filed"),
        (Files(), logged, "program has nothing to compute in batch"),
    ],
)
def test_what_a_batch_job_cannot_do_is_refused_by_name(
    source: Source, define: Callable[[Streamlet], None], message: str
) -> None:
    with pytest.raises(TopologyError, match=message) as e:
        planned(lambda builder: define(builder.new_source(source)))
    assert "\n" not in str(e.value)


def test_in_batch_windows_take_all_elements_and_what_reads_late_ones_is_left_out() -> None:
    def define(builder: Builder) -> None:
        times = builder.new_source(Files()).event_time(float)
        counts = times.count_by_key_and_window(WindowConfig(0.5, 0.5).with_allowed_lateness(5), len)
        counts.to_store("v", Sum())
        counts.late().map(str).to_sink(StreamSink())

    plan = planned(define)
    assert plan.outputs == ["store-1"]
    lateness, late = plan.notes
    assert lateness == "count_by_key_and_window-1 takes all elements: its allowed lateness is for topologies"
    assert late.startswith("sink-1 has no batch side: late-1 cannot run in batch: nothing is late there")


INPUTS = {1: "1:10:aa", 2: "2:10:bb", 5: "5:10:cc"}


def decided(manifest: Manifest, inputs: dict[int, str] = INPUTS, **changes: Any) -> Any:
    options: dict[str, Any] = {"closable": 10, "lookback": 0, "reach": 0}
    options |= {"views": {"v": "Sum()"}, "sinks": [], "windows": {"views/v": ""}}
    by_archive = {batch: {"events": fingerprint} for batch, fingerprint in inputs.items()}
    return decide(manifest, by_archive, archives={"events": "events"}, **(options | changes))


def finished(manifest: Manifest, work: Any) -> Manifest:
    for batch in work.pending:
        inputs = dict(work.inputs.get(batch, {}))
        manifest.batches[batch] = Batch("version", work.fingerprints[batch], inputs=inputs, views={"v": Parts()})
        manifest.batches[batch].monoids = {"v": "Sum()"}
    return manifest


def test_everything_closable_is_pending_once() -> None:
    manifest = Manifest(1000)
    work = decided(manifest, closable=4)
    assert work.pending == [1, 2]
    assert committed_watermark(finished(manifest, work), work, ()) == 4
    assert decided(manifest).pending == [5]


@pytest.mark.parametrize(("lookback", "reach", "pending"), [(0, 0, [2]), (2, 2, [2, 3, 4]), (None, 0, [2, 5])], ids=str)
def test_changed_input_makes_pending_what_is_computed_from_it(
    lookback: int | None, reach: int, pending: list[int]
) -> None:
    manifest = Manifest(1000)
    finished(manifest, decided(manifest, lookback=lookback, reach=reach))
    assert decided(manifest, lookback=lookback, reach=reach).pending == []
    assert decided(manifest, {**INPUTS, 2: "2:11:dd"}, lookback=lookback, reach=reach).pending == pending


def test_a_new_view_makes_all_batches_pending() -> None:
    manifest = Manifest(1000)
    finished(manifest, decided(manifest))
    assert decided(manifest, views={"v": "Sum()", "new": "Sum()"}).pending == [1, 2, 5]


def test_another_monoid_makes_all_batches_pending() -> None:
    manifest = Manifest(1000)
    finished(manifest, decided(manifest))
    assert decided(manifest, views={"v": "Max()"}).pending == [1, 2, 5]
    assert manifest.others("v", "Max()") == [1, 2, 5]
    assert manifest.others("v", "Sum()") == []


def test_batches_whose_archive_has_lost_rows_stay_as_they_are() -> None:
    manifest = Manifest(1000)
    finished(manifest, decided(manifest, lookback=1))
    pruned = {2: "2:7:ee", 3: "3:10:ff", 5: "5:11:gg"}
    work = decided(manifest, pruned, lookback=1)
    assert work.lost == [1, 2]
    assert (work.pending, work.kept, work.less) == ([3, 5], [], [3])
    # Also if somebody asks for them, or has a new view: what can be computed is less than what is there.
    assert decided(manifest, pruned, lookback=1, only=[1, 2, 5]).pending == [5]
    work = decided(manifest, pruned, lookback=1, views={"v": "Sum()", "new": "Sum()"})
    assert (work.kept, work.pending) == ([1, 2], [3, 5])


@given(st.sets(st.integers(-30, 30)), st.one_of(st.none(), st.integers(0, 20)))
def test_what_is_computed_from_damaged_batches_is_left_out(damaged: set[int], lookback: int | None) -> None:
    inputs = {n: f"{n}:1:0" for n in range(-30, 31)}
    work = decided(Manifest(1000), inputs, lookback=lookback, closable=30)
    work.block(damaged, lookback)
    first = -(10**9) if lookback is None else -lookback
    assert work.blocked == [n for n in inputs if any(first <= b - n <= 0 for b in damaged)]
    assert work.pending == [n for n in inputs if n not in set(work.blocked)]


def test_live_rows_are_kept_of_so_many_batches_with_elements() -> None:
    manifest = Manifest(1000, committed_watermark=10**9)
    assert manifest.live_from(0) == 10**9 + 1
    finished(manifest, decided(manifest))
    assert [manifest.live_from(keep) for keep in (1, 2, 3, 4)] == [5, 2, 1, None]


def test_groups_have_a_bound_and_no_gap_where_they_go_on_from_what_is_before() -> None:
    sizes = dict.fromkeys([1, 2, 5], 100)
    assert grouped([1, 2, 5], sizes, 250) == [[1, 2], [5]]
    assert grouped([1, 2, 5], sizes, 1000) == [[1, 2, 5]]
    assert grouped([1, 2, 5], sizes, 1000, [1, 2, 3, 5, 6]) == [[1, 2], [5]]


def test_fingerprints_of_what_is_computed_from_everything_follow_from_that_of_the_batch_before() -> None:
    manifest = Manifest(1000)
    inputs = {batch: f"{batch}:1:aa" for batch in range(10)}
    all_of_it = decided(manifest, inputs, lookback=None)
    for first in range(10):
        manifest = Manifest(1000)
        finished(manifest, decided(manifest, inputs, lookback=None))
        late = {batch: fingerprint for batch, fingerprint in inputs.items() if batch >= first}
        work = decided(manifest, late, lookback=None, among=range(first, 11), looked_at=set(late))
        assert work.fingerprints == {batch: all_of_it.fingerprints[batch] for batch in late}
        assert work.pending == []
        late[first] = f"{first}:2:bb"
        work = decided(manifest, late, lookback=None, among=range(first, 11), looked_at=set(late))
        assert work.pending == [*range(first, 10)]


def test_reductions_are_resumed_where_all_batches_before_neighbours_are_done() -> None:
    manifest = Manifest(1000)
    inputs = {batch: f"{batch}:1:aa" for batch in range(6)}
    work = decided(manifest, inputs, lookback=None, only=[0, 1, 2, 3])
    finished(manifest, work)
    work = decided(manifest, inputs, lookback=None)
    views = {"v": "Sum()"}
    assert can_resume(manifest, work, [4], views, [])
    assert can_resume(manifest, work, [1, 2], views, []), "what is after them is of no importance"
    assert not can_resume(manifest, work, [5], views, []), "4 is not done"
    assert not can_resume(manifest, work, [1, 3], views, []), "2 is between them"
    assert not can_resume(manifest, work, [4], {**views, "~kept": "reduction"}, []), "nothing is kept of those before"


def test_nothing_is_closed_before_a_batch_that_is_left() -> None:
    manifest = Manifest(1000)
    work = decided(manifest)
    finished(manifest, work)
    assert committed_watermark(manifest, work, [5]) == 4
    assert committed_watermark(manifest, work, [1]) == 0
    manifest.committed_watermark = 3
    assert committed_watermark(manifest, work, [1]) == 3


def test_what_is_left_is_not_searched_for_each_batch() -> None:
    class Long(list[int]):
        def __contains__(self, batch: object) -> bool:
            raise AssertionError("of a long archive that takes hours")

    work = decided(Manifest(1000))
    assert committed_watermark(finished(Manifest(1000), work), work, Long([2, 5])) == 1


@given(
    st.lists(st.integers(-100_000, 100_000), min_size=1, max_size=30),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_windows_of_a_chunk_are_those_of_its_elements(times: list[int], duration: int, slide: int) -> None:
    config = WindowConfig(max(duration, slide) / 8, min(duration, slide) / 8)
    grouped = sorted((start, value) for start, values in window_groups(list(times), times, config) for value in values)
    assert grouped == sorted((start, time) for time in times for start in window_starts(time, config))


def test_a_manifest_is_read_as_it_was_saved(tmp_path: Path) -> None:
    manifest = finished(Manifest(1000, committed_watermark=3), decided(Manifest(1000)))
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path, 1000) == manifest


def test_a_manifest_of_the_former_format_is_read_and_one_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / MANIFEST_FILE
    path.write_text(
        '{"batch_length_ms": 1000, "closed_upto": 7, "batches": {"7": {"version": "v", "fingerprint": "f"}},'
        ' "format": 1}'
    )
    read = Manifest.load(tmp_path, 1000)
    assert (read.committed_watermark, read.batches) == (7, {7: Batch("v", "f")})
    read.save(tmp_path)
    assert Manifest.load(tmp_path) == read
    path.write_text('{"batch_length_ms": 1000, "format": 5}')
    with pytest.raises(StateError, match="has format 5, this heronpy reads 4"):
        Manifest.load(tmp_path)
