"""Sessions of batch runs: over batches, in any order, with late elements; joined, and beside memory that is full."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.archive import ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job, Manifest, ViewReader, running
from heronpy.pipeline.sessions import SessionTable
from heronpy.streamlet import Builder, Config, Streamlet, Sum, WindowConfig
from heronpy.streamlet.runner import Program
from tests.chaos.inline_spark import inline_session

pytest.importorskip("pyspark", reason="batch runs need it")

LENGTH_MS = 10_000
GAP_MS = 4_000
GAP = WindowConfig.create_session_window(GAP_MS // 1000)
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

    def __init__(self, place: Path) -> None:
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
        counted = ones.reduce_by_key_and_window(GAP, lambda a, b: a + b)
        counted.to_store("sessions", Sum())
        counted.map(lambda pair: (pair[0].key, 1)).reduce_by_key(lambda a, b: a + b).to_store("number", Sum())
        clicks.map(lambda _: 1).reduce_by_window(GAP, lambda a, b: a + b).to_store("all", Sum())
        ones.join(ones, GAP, lambda a, b: a * b).to_store("pairs", Sum())

    def write(self, *events: Event, upto_ms: int) -> None:
        for key, time in events:
            self._writer.add(f"e{len(self.events)}", time, key)
            self.events.append((key, time))
        self._writer.commit()
        self._writer.progress(upto_ms)

    def view(self, name: str) -> dict[int, dict[Any, Any]]:
        with closing(ViewReader(self.job.directory, name, Sum())) as reader:
            return {n: dict(reader.items(n)) for n in reader.batches() if dict(reader.items(n))}

    def check(self, upto_ms: int) -> None:
        """Views have the sessions of all elements that end in time, in the batches in which they end."""
        assert running.run(self.job).committed_watermark == upto_ms // LENGTH_MS - 1
        counts, pairs = {}, {}
        for (key, start, end), count in sessions_of(self.events).items():
            if (batch := (end - 1) // LENGTH_MS) < upto_ms // LENGTH_MS:
                named = (key, (start / 1000, end / 1000))
                counts.setdefault(batch, {})[named] = count
                pairs.setdefault(batch, {})[named] = count**2
        assert self.view("sessions") == counts
        assert self.view("pairs") == pairs
        everything: dict[int, dict[Any, int]] = {}
        for (_, start, end), count in sessions_of([("", time) for _, time in self.events]).items():
            if (batch := (end - 1) // LENGTH_MS) < upto_ms // LENGTH_MS:
                everything.setdefault(batch, {})[start / 1000, end / 1000] = count
        assert self.view("all") == everything
        plain = Counter((time // LENGTH_MS, key) for key, time in self.events if time < upto_ms)
        assert {(n, key): value for n, found in self.view("counts").items() for key, value in found.items()} == plain


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
