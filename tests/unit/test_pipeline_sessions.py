"""Sessions of batch runs: over batches, in any order, with late elements; joined, and beside memory that is full."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.archive import ArchiveWriter
from heronpy.checkpoints import ArrowStorage
from heronpy.connectors import ListSource
from heronpy.filesystem import Location, UrlPath
from heronpy.pipeline import Job, Manifest, ViewReader, changes, running
from heronpy.pipeline.computing import compute
from heronpy.pipeline.leftovers import search
from heronpy.pipeline.partials import PartialsTask
from heronpy.pipeline.sessions import SessionTable
from heronpy.streamlet import Builder, Config, Streamlet, Sum, WindowConfig
from heronpy.streamlet.runner import Program
from tests.chaos.inline_spark import inline_session
from tests.unit.pipeline_model import Killed, model

pytest.importorskip("pyspark", reason="batch runs need it")

LENGTH_MS = 10_000
GAP_MS = 4_000
_NUMBERS = itertools.count()
Event = tuple[str, int]
"""Key and time in ms."""


def sessions_of(events: list[Event], gap_ms: int = GAP_MS) -> Counter[tuple[str, int, int]]:
    """How many elements each session has: (key, start, end)."""
    found: Counter[tuple[str, int, int]] = Counter()
    for key in {key for key, _ in events}:
        times = sorted(time for k, time in events if k == key)
        start = 0
        for i, time in enumerate(times, 1):
            if i == len(times) or times[i] - time >= gap_ms:
                found[key, times[start], time + gap_ms] = i - start
                start = i
    return found


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=40), st.integers(1, 9), st.data())
def test_sessions_are_the_same_in_whatever_order_and_parts_elements_come(
    events: list[Event], gap: int, data: st.DataObject
) -> None:
    def table() -> SessionTable:
        return SessionTable(lambda _key, a, b, _time: (a + b, True))

    parts = [table(), table(), table()]
    for key, time in events:
        part = data.draw(st.sampled_from(parts))
        part.add(key, time, time + gap, 1)
        assert part.size == len([*part.rows()])
    whole = table()
    for row in data.draw(st.permutations([row for part in parts for row in part.rows()])):
        whole.add(*row)
    assert {(key, start, end): count for key, start, end, count in whole.rows()} == sessions_of(events, gap)


class Clicks:
    """Sessions of an archive of clicks, and all else that a run can make of it."""

    def __init__(self, place: Location, gap_ms: int = GAP_MS) -> None:
        self.gap_ms, self.gap = gap_ms, WindowConfig.create_session_window(gap_ms / 1000)
        builder, config = Builder(), Config()
        clicks = builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name="clicks")
        self.define(clicks)
        config.set_pipeline(place, batch_length=LENGTH_MS // 1000)
        self.job = Job.of(Program("clicks", config, builder.graph))
        self.events: list[Event] = []
        self._writer = ArchiveWriter(
            place / "archive" / "clicks",
            task="0",
            batch_length_ms=LENGTH_MS,
            codec="columns",
            dead_letter=print,
            run="r",
        )

    def define(self, clicks: Streamlet) -> None:
        ones = clicks.map(lambda key: (key, 1))
        ones.to_store("counts", Sum())
        counted = ones.reduce_by_key_and_window(self.gap, lambda a, b: a + b)
        counted.to_store("sessions", Sum())
        counted.map(lambda pair: (pair[0].key, 1)).reduce_by_key(lambda a, b: a + b).to_store("number", Sum())
        clicks.map(lambda _: 1).reduce_by_window(self.gap, lambda a, b: a + b).to_store("all", Sum())
        ones.join(ones, self.gap, lambda a, b: a * b).to_store("pairs", Sum())

    def write(self, *events: Event, upto_ms: int) -> None:
        for key, time in events:
            self._writer.add(f"e{next(_NUMBERS)}", time, key)
            self.events.append((key, time))
        self._writer.commit()
        self._writer.progress(upto_ms)

    def view(self, name: str) -> dict[int, dict[Any, Any]]:
        with closing(ViewReader(self.job.directory, name, Sum())) as reader:
            return {n: dict(reader.items(n)) for n in reader.batches() if dict(reader.items(n))}

    def check(self, upto_ms: int) -> None:
        """Views have the sessions of all elements that end in time, in the batches in which they end."""
        assert running.run(self.job).committed_watermark == upto_ms // LENGTH_MS - 1
        self.check_views(upto_ms)

    def check_views(self, upto_ms: int) -> None:
        counts, pairs = {}, {}
        for (key, start, end), count in sessions_of(self.events, self.gap_ms).items():
            if (batch := (end - 1) // LENGTH_MS) < upto_ms // LENGTH_MS:
                named = (key, (start / 1000, end / 1000))
                counts.setdefault(batch, {})[named] = count
                pairs.setdefault(batch, {})[named] = count**2
        assert self.view("sessions") == counts
        if "pairs" in self.job.stores():
            assert self.view("pairs") == pairs
        everything: dict[int, dict[Any, int]] = {}
        for (_, start, end), count in sessions_of([("", time) for _, time in self.events], self.gap_ms).items():
            if (batch := (end - 1) // LENGTH_MS) < upto_ms // LENGTH_MS:
                everything.setdefault(batch, {})[start / 1000, end / 1000] = count
        assert self.view("all") == everything
        plain = Counter((time // LENGTH_MS, key) for key, time in self.events if time < upto_ms)
        assert {(n, key): value for n, found in self.view("counts").items() for key, value in found.items()} == plain


class Sessions(Clicks):
    """Sessions alone: what is open at the end of each batch is kept."""

    def define(self, clicks: Streamlet) -> None:
        ones = clicks.map(lambda key: (key, 1))
        ones.to_store("counts", Sum())
        ones.reduce_by_key_and_window(self.gap, lambda a, b: a + b).to_store("sessions", Sum())
        clicks.map(lambda _: 1).reduce_by_window(self.gap, lambda a, b: a + b).to_store("all", Sum())

    def from_scratch(self, place: Path, upto_ms: int) -> None:
        """What another job makes of the same archive, which has nothing to go on from."""
        other = type(self)(place, self.gap_ms)
        shutil.copytree(self.job.directory / "archive", place / "archive", dirs_exist_ok=True)
        assert running.run(other.job).committed_watermark == upto_ms // LENGTH_MS - 1
        for view in self.job.stores():
            assert self.view(view) == other.view(view), view


class Nested(Sessions):
    """Sessions of windows and of sessions, and windows of sessions: some batches before one are looked back at."""

    def define(self, clicks: Streamlet) -> None:
        super().define(clicks)
        ones = clicks.map(lambda key: (key, 1))
        sliding, long = WindowConfig(15, 5), WindowConfig(25, 25)
        of_windows = ones.reduce_by_key_and_window(sliding, lambda a, b: a + b).map(lambda pair: (pair[0].key, pair[1]))
        of_windows.reduce_by_key_and_window(self.gap, lambda a, b: a + b).set_name("w").to_store("of-windows", Sum())
        sessions = ones.reduce_by_key_and_window(self.gap, lambda a, b: a + b).set_name("s")
        number = sessions.map(lambda pair: (pair[0].key, 1))
        number.reduce_by_key_and_window(long, lambda a, b: a + b).to_store("windows", Sum())
        longer = WindowConfig.create_session_window(2 * self.gap_ms / 1000)
        number.reduce_by_key_and_window(longer, lambda a, b: a + b).set_name("ss").to_store("of-sessions", Sum())


class Joined(Sessions):
    """With sessions of joins: of elements, of windows and of sessions, and windows of those."""

    def define(self, clicks: Streamlet) -> None:
        super().define(clicks)
        ones = clicks.map(lambda key: (key, 1))
        ones.join(ones, self.gap, lambda a, b: a * b).set_name("j").to_store("pairs", Sum())
        sliding, long = WindowConfig(15, 5), WindowConfig(25, 25)
        of_windows = ones.reduce_by_key_and_window(sliding, lambda a, b: a + b).map(lambda pair: (pair[0].key, pair[1]))
        sessions = ones.reduce_by_key_and_window(self.gap, lambda a, b: a + b).set_name("s")
        of_sessions = sessions.map(lambda pair: (pair[0].key, pair[1]))
        longer = WindowConfig.create_session_window(2 * self.gap_ms / 1000)
        outer = of_windows.outer_join(of_sessions, longer, lambda a, b: (a or 100) * (b or 1000)).set_name("o")
        outer.to_store("outer", Sum())
        outer.map(lambda pair: (pair[0].key, 1)).reduce_by_key_and_window(long, lambda a, b: a + b).to_store(
            "windows", Sum()
        )


class Reduced(Nested):
    """With reductions without windows, before and after sessions."""

    def define(self, clicks: Streamlet) -> None:
        super().define(clicks)
        ones = clicks.map(lambda key: (key, 1))
        so_far = ones.reduce_by_key(lambda a, b: a + b).set_name("r")
        so_far.reduce_by_key_and_window(self.gap, max).set_name("rs").to_store("of-reduced", Sum())
        sessions = ones.reduce_by_key_and_window(self.gap, lambda a, b: a + b).set_name("s2")
        sessions.map(lambda pair: (pair[0].key, 1)).reduce_by_key(lambda a, b: a + b).set_name("sr").to_store(
            "number", Sum()
        )


@pytest.fixture
def clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clicks:
    monkeypatch.setattr(running, "spark_session", inline_session)
    return Clicks(tmp_path)


def test_sessions_over_several_batches_are_in_the_batch_in_which_they_end_whenever_runs_are(clicks: Clicks) -> None:
    long = [("long", time) for time in range(1_000, 38_000, 3_000)]  # ends at 41 s, in the fifth batch
    edge = [("edge", 6_000), ("edge", 16_000), ("edge", 20_000)]  # end with a batch, a gap before the next element
    for end in range(10_000, 70_000, 10_000):
        clicks.write(*(e for e in long + edge if end - 10_000 <= e[1] < end), upto_ms=end)
        clicks.check(end)
    assert [n for n, found in clicks.view("sessions").items() if any(key[0] == "long" for key in found)] == [4]
    assert Manifest.load(clicks.job.directory).committed_watermark == 5


def test_a_late_element_joins_two_sessions_of_batches_that_are_done(clicks: Clicks) -> None:
    clicks.write(("a", 3_000), ("a", 10_000), ("b", 5_000), ("b", 31_000), upto_ms=40_000)
    clicks.check(40_000)
    assert {key for found in clicks.view("sessions").values() for key in found if key[0] == "a"} == {
        ("a", (3.0, 7.0)),
        ("a", (10.0, 14.0)),
    }
    clicks.write(("a", 6_500), upto_ms=40_000)
    clicks.check(40_000)
    assert {key for found in clicks.view("sessions").values() for key in found if key[0] == "a"} == {("a", (3.0, 14.0))}


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 59_999)), max_size=12), min_size=1, max_size=4)
)
def test_any_runs_over_any_archive_make_the_sessions_that_one_run_makes(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[Event]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "spark_session", inline_session)
        world = Clicks(tmp_path_factory.mktemp("clicks"))
        for upto_ms, events in zip(itertools.chain([20_000, 50_000], itertools.repeat(80_000)), commits, strict=False):
            world.write(("first", 0), *events, upto_ms=upto_ms)
            world.check(upto_ms)


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.long) for kind in (Sessions, Nested)), Joined, Reduced]
)
@settings(max_examples=10)
@given(st.data())
def test_sessions_that_go_on_from_open_ones_are_those_that_are_made_from_scratch(
    tmp_path_factory: pytest.TempPathFactory, kind: type[Sessions], data: st.DataObject
) -> None:
    events = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-10_000, 79_999)), max_size=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "spark_session", inline_session)
        patch.setattr(changes, "LISTED_BATCHES", data.draw(st.sampled_from([0, 1_000])))
        patch.setattr(changes, "_IN_TURN", 1)
        patch.setattr(running, "_GROUP_BYTES", data.draw(st.sampled_from([1, 2**31])))
        patch.setattr(running, "_CORE_BYTES", 1)
        world = kind(tmp_path_factory.mktemp("clicks"), data.draw(st.sampled_from([4_000, 25_000])))
        upto_ms = 0
        for _ in range(data.draw(st.integers(1, 5))):
            upto_ms = max(upto_ms, data.draw(st.integers(1, 10)) * LENGTH_MS)
            world.write(("first", -10_000), *data.draw(events), upto_ms=upto_ms)
            if data.draw(st.booleans()):
                running.run(world.job, until_ms=data.draw(st.integers(1, upto_ms // LENGTH_MS)) * LENGTH_MS)
            if data.draw(st.booleans()):
                upto = Manifest.load(world.job.directory).committed_watermark
                if upto is not None:
                    running.run(world.job, batches=[data.draw(st.integers(-1, upto))])
            world.check(upto_ms)
        assert running.run(world.job).batches == []
        world.from_scratch(tmp_path_factory.mktemp("other"), upto_ms)


class Read:
    """What runs read of archives, and of what is kept."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clear()

        def watched(*args: Any, **options: Any) -> Any:
            self.jobs += 1
            self.kept += sum(len(task.files) for task in args[4] if isinstance(task, PartialsTask))
            report, version = compute(*args, **options)
            self.rows += sum(report.rows.values())
            return report, version

        patch.setattr(running, "compute", watched)

    def clear(self) -> None:
        self.jobs = self.rows = self.kept = 0

    def all(self) -> tuple[int, int, int]:
        return self.jobs, self.rows, self.kept


def filled(kind: type[Sessions], place: Path, batches: int) -> Sessions:
    """Clicks in batches that are done: each has a session of its own, and one that ends in the next batch."""
    world = kind(place)
    ones = ((f"own{n}", n * LENGTH_MS + 1_000) for n in range(batches))
    edges = ((f"edge{n}", n * LENGTH_MS + 9_000) for n in range(batches))
    world.write(*ones, *edges, upto_ms=batches * LENGTH_MS)
    world.check(batches * LENGTH_MS)
    return world


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.long) for kind in (Sessions, Nested)), Joined, Reduced]
)
def test_a_run_reads_what_is_new_and_a_late_file_what_it_can_touch_however_long_the_history_is(
    kind: type[Sessions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    found = {}
    for batches in (20, 200):
        world = filled(kind, tmp_path / str(batches), batches)
        end_ms, read = batches * LENGTH_MS, Read(monkeypatch)
        world.write(("new", end_ms + 1_000), upto_ms=end_ms + LENGTH_MS)
        world.check(end_ms + LENGTH_MS)
        new = read.all()
        read.clear()
        if kind is Reduced:  # what is behind its reductions follows from all batches before
            found[batches] = [new]
            continue
        world.write(("own5", 52_500), upto_ms=end_ms + LENGTH_MS)  # is over with its batch
        world.check(end_ms + LENGTH_MS)
        inside = read.all()
        read.clear()
        world.write(("edge7", 82_000), ("edge7", 85_000), ("edge7", 89_000), upto_ms=end_ms + LENGTH_MS)
        world.check(end_ms + LENGTH_MS)
        found[batches] = [new, inside, read.all()]
    assert found[20][1:] == found[200][1:]
    assert found[20][0][:2] == found[200][0][:2]
    if kind is Sessions:
        assert found[200] == [(1, 1, 2), (1, 3, 2), (2, 12, 4)]


def test_a_late_element_that_joins_sessions_of_several_batches_counts_in_all_of_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = model(monkeypatch)
    chain = [("long", time) for time in range(5_000, 75_000, 3_000) if time != 35_000]  # two sessions, ended in 3 and 7
    world = Sessions(tmp_path)
    world.write(*chain, ("other", 95_000), upto_ms=100_000)
    world.check(100_000)
    before = world.view("sessions")
    world.write(("long", 35_000), upto_ms=100_000)
    seen: list[Any] = []
    with operations.watched(before=lambda: seen.append(world.view("sessions"))):
        running.run(world.job)
    world.check_views(100_000)
    after = world.view("sessions")
    assert before != after
    assert all(found in (before, after) for found in seen)
    assert running.run(world.job).batches == []


def test_whenever_a_run_is_killed_the_next_one_makes_the_sessions_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = model(monkeypatch)
    monkeypatch.setattr(running, "_GROUP_BYTES", 1)  # what reaches over several groups is seen part by part
    monkeypatch.setattr(running, "_CORE_BYTES", 1)
    world = Nested(tmp_path)
    world.write(*(("long", time) for time in range(1_000, 48_000, 3_000) if time != 25_000), upto_ms=70_000)
    world.check(70_000)
    late = iter(range(25_000, 29_000, 50))
    kill_at, is_killed = 0, True  # before one of its first operations, and so on
    while is_killed:
        world.write(("long", next(late)), upto_ms=70_000)
        is_killed = False
        with operations.watched(kill_at):
            try:
                running.run(world.job)
            except Killed:
                is_killed = True
        kill_at += 19
        world.check(70_000)
        assert running.run(world.job).batches == []
    world.from_scratch(tmp_path / "other", 70_000)


class Unequal(Sessions):
    """Keys of which none is equal to another, nor to itself."""

    def define(self, clicks: Streamlet) -> None:
        ones = clicks.map(lambda key: (float(key), 1))
        ones.reduce_by_key_and_window(self.gap, lambda a, b: a + b).to_store("sessions", Sum())
        ones.outer_join(ones, self.gap, lambda a, b: 1).to_store("pairs", Sum())

    def view(self, name: str) -> dict[int, dict[Any, Any]]:
        found = super().view(name)
        return {
            n: {(str(key), tuple(window)): value for (key, window), value in rows.items()} for n, rows in found.items()
        }


def test_keys_that_are_not_equal_to_themselves_have_a_session_each(clicks: Clicks, tmp_path: Path) -> None:
    world = Unequal(tmp_path / "job")
    for end_ms in (10_000, 20_000, 30_000):
        world.write(*(("nan", end_ms - back_ms) for back_ms in (1_000, 2_000, 9_000)), upto_ms=end_ms)
        assert running.run(world.job).committed_watermark == end_ms // LENGTH_MS - 1
    world.from_scratch(tmp_path / "other", 30_000)
    sessions, joined = world.view("sessions"), world.view("pairs")
    assert sessions[1] == {("nan", window): 1 for window in [(8.0, 12.0), (9.0, 13.0), (11.0, 15.0)]}
    assert joined[1] == {key: 2 * count for key, count in sessions[1].items()}, "none has a partner"


class Plain(Sessions):
    """The same program without its sessions."""

    def define(self, clicks: Streamlet) -> None:
        clicks.map(lambda key: (key, 1)).to_store("counts", Sum())


@pytest.mark.parametrize("kind", [Sessions, Nested, Joined])
@pytest.mark.parametrize(("before", "after"), [(4_000, 12_000), (25_000, 4_000)])
def test_with_another_gap_all_sessions_are_made_anew(
    clicks: Clicks, tmp_path: Path, kind: type[Sessions], before: int, after: int
) -> None:
    first = kind(tmp_path / "edited", before)
    first.write(*(("a", time) for time in (1_000, 4_000, 9_000, 20_000, 41_000)), ("b", 95_000), upto_ms=100_000)
    running.run(first.job)
    then = kind(tmp_path / "edited", after)
    then.write(("a", 11_000), upto_ms=100_000)
    running.run(then.job)
    then.from_scratch(tmp_path / "other", 100_000)


def test_sessions_that_come_back_to_a_program_have_what_came_late_without_them(clicks: Clicks, tmp_path: Path) -> None:
    place = tmp_path / "edited"
    first = Sessions(place)
    first.write(*(("a", time) for time in range(1_000, 50_000, 3_000) if time != 19_000), upto_ms=60_000)
    first.check(60_000)
    without = Plain(place)
    without.write(("a", 19_000), ("a", 65_000), upto_ms=70_000)
    running.run(without.job)
    assert running.run(first.job).batches
    first.from_scratch(tmp_path / "other", 70_000)


def test_sessions_of_an_archive_in_a_store_go_on_from_open_ones(
    clicks: Clicks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = ArrowStorage(pyarrow.fs.LocalFileSystem(), str(tmp_path / "store"))
    monkeypatch.setattr("heronpy.checkpoints.open_storage", lambda url: storage)
    place = UrlPath(f"hdfs://sessions-{os.getpid()}/x", "job")
    world, read = Sessions(place), Read(monkeypatch)
    world.write(*(("long", time) for time in range(1_000, 60_000, 3_000) if time != 28_000), upto_ms=70_000)
    world.check(70_000)
    read.clear()
    world.write(("long", 28_000), ("new", 75_000), upto_ms=80_000)
    world.check(80_000)
    assert read.jobs > 1
    assert running.run(world.job).batches == []
    left = search(place, Manifest.load(place))
    assert not left, [str(path) for path in left]


def test_a_late_element_of_a_long_session_is_computed_in_few_jobs_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world, read = Sessions(tmp_path), Read(monkeypatch)
    world.write(*(("long", time) for time in range(1_000, 400_000, 3_000) if time != 28_000), upto_ms=500_000)
    world.check(500_000)
    read.clear()
    world.write(("long", 28_000), upto_ms=500_000)
    world.check(500_000)
    assert read.jobs <= 7, "of 38 batches"
    assert running.run(world.job).batches == []
    left = search(tmp_path, Manifest.load(tmp_path))
    assert not left, [str(path) for path in left]


@pytest.mark.parametrize("how", ["raises", "cannot be sent"])
def test_what_cannot_be_reduced_in_a_session_is_set_aside_in_its_batch_and_no_other_session_is(
    clicks: Clicks, tmp_path: Path, how: str
) -> None:
    def bad(a: Any, b: Any) -> Any:
        if how == "raises":
            raise ValueError(a, b)
        return threading.Lock()

    class Bad(Sessions):
        def define(self, clicks: Streamlet) -> None:
            ones = clicks.map(lambda key: (key, 1))
            ones.reduce_by_key_and_window(self.gap, bad).to_store("bad", Sum())

    world = Bad(tmp_path / "job")
    good = [(f"k{n}", n * 1_000) for n in range(30)]
    good += [(f"l{n}", n * 1_000) for n in range(30)]
    world.write(*good, ("bad", 7_000), ("bad", 10_500), ("bad", 25_000), upto_ms=40_000)
    assert running.run(world.job).dead_letters == 1
    kept = [key for found in world.view("bad").values() for key in found]
    assert {key for key, _ in kept if key != "bad"} == {key for key, _ in good}
    # What was reduced goes with a value that cannot be sent.
    assert {window for key, window in kept if key == "bad"} == {
        (25.0, 29.0),
        *([(7.0, 11.0)] if how == "raises" else []),
    }
    for batch, count in ((0, 0), (1, 1), (2, 0)):
        assert Manifest.load(world.job.directory).batches[batch].dead_letters == count
        assert running.run(world.job, batches=[batch]).dead_letters == count
