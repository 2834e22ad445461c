"""Batch runs on Spark: every operation against a plain model, failures of user code, refusals."""

from __future__ import annotations

import datetime
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_lists import Lists

from heronpy.archive import dead_letter_counts
from heronpy.connectors import Sink, SinkContext, SinkWriter, TextSink
from heronpy.errors import AlreadyExistsError, TopologyError, UserCodeError
from heronpy.pipeline import Job, Manifest, RunReport, ViewReader, run, states
from heronpy.pipeline.manifest import lock
from heronpy.streamlet import Builder, Config, Context, Monoid, Sum, TransformOperator, WindowConfig
from heronpy.streamlet.runner import Program
from heronpy.streamlet.windows import window_at, window_starts

pyspark = pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


class Everything(Monoid):
    """Keeps all values, sorted: what reached a view, exactly."""

    def lift(self, value: Any) -> Any:
        return [value]

    def merge(self, a: Any, b: Any) -> Any:
        return sorted([*a, *b], key=repr)


class JsonSink(Sink):
    supports_batch = True

    def open(self, context: SinkContext) -> SinkWriter:
        raise NotImplementedError("in batch jobs only")

    def write_part(self, path: Path, elements: Iterator[Any]) -> Path:
        target = path.with_name(path.name + ".json")
        target.write_text(json.dumps(list(elements)))
        return target


LINES = [[(f"w{i % 7} w{(i * 3 + j) % 5}", 500 * i + j) for i in range(300)] for j in range(3)]
ROWS = [row for rows in LINES for row in rows]
LENGTH_MS = 10_000


def job_of(builder: Builder, directory: Path, batch_length: float = LENGTH_MS / 1000) -> Job:
    config = Config()
    config.set_pipeline(directory, batch_length=batch_length)
    return Job.of(Program("test", config, builder.graph))


def view(job: Job, name: str) -> dict[int, dict[Any, Any]]:
    reader = ViewReader(job.directory, name, job.stores()[name].monoid)
    return {batch: rows for batch in reader.batches() if (rows := dict(reader.items(batch)))}


def grouped(pairs: Iterator[tuple[Any, Any, int]]) -> dict[int, dict[Any, Any]]:
    """{batch: {key: sorted values}} of (key, value, time)."""
    made: dict[int, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for key, value, time in pairs:
        made[time // LENGTH_MS][key].append(value)
    return {batch: {key: sorted(values, key=repr) for key, values in rows.items()} for batch, rows in made.items()}


def test_word_counts_per_batch_are_exact(tmp_path: Path) -> None:
    builder = Builder()
    builder.new_source(Lists(*LINES)).flat_map(str.split).map(lambda w: (w, 1)).to_store("counts", Sum())
    job = job_of(builder, tmp_path)
    report = run(job)
    exact: dict[int, Counter[str]] = defaultdict(Counter)
    for line, time in ROWS:
        exact[time // LENGTH_MS].update(line.split())
    assert view(job, "counts") == exact
    assert report.elements == len(ROWS)
    assert report.committed_watermark == max(exact)
    reader = ViewReader(tmp_path, "counts", Sum())
    assert reader.get("w1") == sum(counts["w1"] for counts in exact.values())
    assert reader.get("w1", upto=3) == sum(exact[batch]["w1"] for batch in range(4))
    assert reader.get("w9") is None


class Tagger(TransformOperator):
    """Emits each word of an element with the number of partitions."""

    def setup(self, context: Context) -> None:
        self.context = context

    def transform(self, tup: Any) -> None:
        for word in tup.values[0].split():
            self.context.emit([(word, self.context.get_num_partitions())])


def test_elementwise_operations_do_what_plain_python_does(tmp_path: Path) -> None:
    builder = Builder()
    lines = builder.new_source(Lists(*LINES))
    words = lines.flat_map(str.split)
    words.filter(lambda w: w > "w2").map(lambda w: (w, "big")).to_store("filtered", Everything())
    lines.transform(Tagger()).to_store("transformed", Everything())
    lines.key_by(lambda line: line[:2], len).union(words.map(lambda w: (w, 1))).to_store("union", Everything())
    lines.repartition(4, lambda line: [0, 1, 3]).map(lambda line: (line, 1)).to_store("copies", Sum())
    parts = lines.split({"one": lambda line: "w1" in line, "all": lambda line: True})
    parts["one"].map(lambda line: (line, 1)).to_store("split", Sum())
    early = datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=datetime.UTC)
    lines.event_time(lambda line: 12.5 if "w1" in line else early).map(lambda line: (line, 1)).to_store("timed", Sum())
    lines.log()
    lines.map(str.upper).to_sink(JsonSink())
    job = job_of(builder, tmp_path)
    report = run(job)
    both = [(word, time) for line, time in ROWS for word in line.split()]
    assert view(job, "filtered") == grouped((w, "big", t) for w, t in both if w > "w2")
    assert view(job, "transformed") == grouped((w, 1, t) for w, t in both)
    union = [*((line[:2], len(line), t) for line, t in ROWS), *((w, 1, t) for w, t in both)]
    assert view(job, "union") == grouped(iter(union))
    sums = {b: {k: 3 * len(v) for k, v in rows.items()} for b, rows in grouped((w, 1, t) for w, t in ROWS).items()}
    assert view(job, "copies") == sums
    ones = grouped((line, 1, t) for line, t in ROWS if "w1" in line)
    assert view(job, "split") == {b: {k: sum(v) for k, v in rows.items()} for b, rows in ones.items()}
    assert view(job, "timed") == {
        1: Counter(line for line, _ in ROWS if "w1" in line),
        0: Counter(line for line, _ in ROWS if "w1" not in line),
    }
    assert report.notes == ["log-1 is left out: log() is for topologies"]
    written: dict[int, list[str]] = {}
    manifest = Manifest.load(tmp_path)
    for number, batch in manifest.batches.items():
        folder = tmp_path / "sinks" / "sink-1" / f"batch={number}" / batch.version
        files = batch.sinks["sink-1"].files
        written[number] = sorted(e for name in files for e in json.loads((folder / name).read_text()))
        assert sorted(path.name for path in folder.iterdir()) == files
    assert written == {
        b: sorted(k for k, v in rows.items() for _ in v)
        for b, rows in grouped((line.upper(), 1, t) for line, t in ROWS).items()
    }


def windows(rows: list[tuple[Any, int]], config: WindowConfig) -> dict[int, list[Any]]:
    made: dict[int, list[Any]] = defaultdict(list)
    for value, time in rows:
        for start in window_starts(time, config):
            made[start].append(value)
    return made


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(WindowConfig(15, 15), id="tumbling", marks=pytest.mark.long),
        pytest.param(WindowConfig(20, 7), id="sliding"),
    ],
)
def test_windows_that_cross_batches_are_whole(tmp_path: Path, config: WindowConfig) -> None:
    builder = Builder()
    lines = builder.new_source(Lists(*LINES))
    pairs = lines.map(lambda line: (line[:2], 1))
    pairs.reduce_by_key_and_window(config, lambda a, b: a + b).to_store("keyed", Everything())
    lines.map(len).reduce_by_window(config, lambda a, b: a + b).to_store("all", Everything())
    left = lines.filter(lambda line: "w1" in line).map(lambda line: (line[:2], "l"))
    right = lines.filter(lambda line: "w2" in line).map(lambda line: (line[:2], "r"))
    join = lambda a, b: f"{a}{b}"  # noqa: E731  # four times below
    left.join(right, config, join).to_store("inner", Everything())
    left.outer_left_join(right, config, join).to_store("left", Everything())
    left.outer_right_join(right, config, join).to_store("right", Everything())
    left.outer_join(right, config, join).to_store("outer", Everything())
    job = job_of(builder, tmp_path)
    run(job)

    def results() -> Iterator[tuple[Any, Any, int]]:
        for start, values in windows(ROWS, config).items():
            for key, count in Counter(line[:2] for line in values).items():
                yield (key, window_at(start, config)), count, start + config.duration_ms - 1

    assert view(job, "keyed") == grouped(results())
    sums = (
        (window_at(s, config), sum(map(len, v)), s + config.duration_ms - 1) for s, v in windows(ROWS, config).items()
    )
    assert view(job, "all") == grouped(sums)

    def joined(keep_left: bool, keep_right: bool) -> Iterator[tuple[Any, Any, int]]:
        for start, values in windows(ROWS, config).items():
            a = Counter(line[:2] for line in values if "w1" in line)
            b = Counter(line[:2] for line in values if "w2" in line)
            for key in {*a, *b}:
                text, count = "lr", a[key] * b[key]
                if not b[key]:
                    text, count = "lNone", a[key] if keep_left else 0
                elif not a[key]:
                    text, count = "Noner", b[key] if keep_right else 0
                for _ in range(count):
                    yield (key, window_at(start, config)), text, start + config.duration_ms - 1

    assert view(job, "inner") == grouped(joined(False, False))
    assert view(job, "left") == grouped(joined(True, False))
    assert view(job, "right") == grouped(joined(False, True))
    assert view(job, "outer") == grouped(joined(True, True))


def test_unwindowed_reductions_tell_each_key_once_per_batch(tmp_path: Path) -> None:
    builder = Builder()
    counts = builder.new_source(Lists(*LINES)).count_by_key(lambda line: line)
    counts.set_name("totals").to_store("so-far", Everything())
    # A join of the input with what comes later: its blocks pass through a level.
    counts.count_by_key(lambda pair: pair[0][:2]).to_store("changes", Everything())
    job = job_of(builder, tmp_path)
    run(job)
    expected: dict[int, dict[Any, Any]] = defaultdict(dict)
    changes: dict[int, dict[Any, Any]] = defaultdict(dict)
    total: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for batch in sorted({t // LENGTH_MS for _, t in ROWS}):
        here = Counter(line for line, t in ROWS if t // LENGTH_MS == batch)
        total += here
        changed.update(line[:2] for line in here)
        expected[batch] = {line: [total[line]] for line in here}
        changes[batch] = {key: [changed[key]] for key in {line[:2] for line in here}}
    assert view(job, "so-far") == expected
    assert view(job, "changes") == changes
    with states(job) as by_stage:
        assert dict(by_stage["totals"]) == total
    assert not list(tmp_path.glob(".states-*"))


def test_elements_that_user_code_cannot_take_are_set_aside(tmp_path: Path) -> None:
    builder = Builder()
    numbers = builder.new_source(Lists([(i, 1000 * i) for i in range(200)]))
    numbers.map(lambda n: ("sum", 1 // (n % 100))).map(lambda pair: pair).to_store("sums", Sum())
    job = job_of(builder, tmp_path)
    report = run(job)
    assert report.dead_letters == 2
    assert ViewReader(tmp_path, "sums", Sum()).get("sum") == 2
    lines = [
        json.loads(line)
        for path in (tmp_path / "dead-letter" / "map-1").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert sorted(line["row"] for line in lines) == [0, 100]
    assert all("ZeroDivisionError" in line["reason"] for line in lines)
    assert Manifest.load(tmp_path).batches[10].dead_letters == 1


def test_elements_that_a_sink_cannot_hold_are_set_aside(tmp_path: Path) -> None:
    builder = Builder()
    texts = builder.new_source(Lists([("\ud800" if i == 7 else f"text {i}", 1000 * i) for i in range(20)]))
    texts.to_sink(TextSink(tmp_path / "out"))
    report = run(job_of(builder, tmp_path))
    assert (report.dead_letters, report.rows) == (1, {"sink-1": 19})
    (letter,) = ("".join(path.read_text() for path in (tmp_path / "dead-letter" / "sink-1").iterdir())).splitlines()
    assert json.loads(letter)["row"] == "\ud800"
    run(job_of(builder, tmp_path))
    assert dead_letter_counts(tmp_path) == {"sink-1": 1}, "the run before has left its own"


def test_a_program_that_fails_for_most_elements_replaces_nothing(tmp_path: Path) -> None:
    def program(function: Any) -> RunReport:
        builder = Builder()
        builder.new_source(Lists([(i, i) for i in range(100)])).map(function).to_store("sums", Sum())
        return run(job_of(builder, tmp_path))

    program(lambda n: ("n", n))
    with pytest.raises(UserCodeError, match=r"raised for 80 of 100 elements, first in map-1: ZeroDivisionError") as e:
        program(lambda n: ("n", 1 // max(0, n - 79)))
    assert "1 // max(0, n - 79)" in e.value.traceback
    assert ViewReader(tmp_path, "sums", Sum()).get("n") == sum(range(100))


def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path) -> None:
    builder = Builder()
    builder.new_source(Lists([(("k", 1), 0)])).to_store("sums", Sum())
    with lock(tmp_path), pytest.raises(AlreadyExistsError, match="another batch run"):
        run(job_of(builder, tmp_path))


def test_a_source_that_says_it_has_no_past_is_refused(tmp_path: Path) -> None:
    class Streaming(Lists):
        def splits(self, target_bytes: int) -> Any:
            return None

    builder = Builder()
    builder.new_source(Streaming()).to_store("sums", Sum())
    with pytest.raises(TopologyError, match="source-1 cannot be read in batch"):
        run(job_of(builder, tmp_path))
