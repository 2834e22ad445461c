"""Programs with a job: stores, archives, and what a batch job has left for them."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from streamlet_kit import ACKED, WRITTEN, ListSink, ListSource, config, run

from heronpy import connectors
from heronpy.api import TopologyBuilder
from heronpy.errors import ConfigError, UnavailableError
from heronpy.pipeline import Job, MergedStore
from heronpy.stores import Store, StoreContext, StoreReader, StoreWriter
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.bootstrap import read_cut, read_states, write_cut, write_states
from heronpy.streamlet.parts import StageBolt, add_stages, topology_settings
from heronpy.streamlet.runner import Program

HOUR = 3_600_000
WORDS = ["a", "b", "a", "c", "a", "b"] * 5
TIMES = [n * HOUR // 10 for n in range(30)]
"""Three batches of ten."""


@pytest.fixture(autouse=True)
def swift_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StageBolt, "commit_every_ms", 10)
    monkeypatch.setattr("heronpy.streamlet._task.WATERMARK_EVERY_MS", 10)
    monkeypatch.setattr("heronpy.streamlet._spout.CHORES_EVERY_MS", 5)


class Memory(Store):
    """Rows by writer and key, in this process. Fails the first commits."""

    rows: ClassVar[Counter[Any]] = Counter()
    writers: ClassVar[set[str]] = set()
    failures = 0
    commits = 0

    def writer(self, context: StoreContext, writer_id: str) -> StoreWriter:
        Memory.writers.add(writer_id)
        return MemoryWriter()

    def reader(self, context: StoreContext) -> StoreReader:
        raise NotImplementedError


class MemoryWriter(StoreWriter):
    def __init__(self) -> None:
        self.waiting: Counter[Any] = Counter()

    def merge(self, key: Any, delta: Any, batch: int = 0) -> None:
        if key == "c":
            raise TypeError("no c")
        self.waiting[batch, key] += delta

    def commit(self) -> None:
        Memory.commits += 1
        if Memory.failures:
            Memory.failures -= 1
            raise UnavailableError("the store does not answer")
        Memory.rows += self.waiting
        self.waiting.clear()

    def close(self) -> None:
        pass


@pytest.fixture
def memory() -> type[Memory]:
    Memory.rows, Memory.writers, Memory.failures, Memory.commits = Counter(), set(), 0, 0
    return Memory


def job(directory: Path) -> Config:
    made = config()
    made.set_pipeline(directory)
    return made


def program() -> Any:
    ACKED.clear()
    builder = Builder()
    return builder, builder.new_source(ListSource("in", WORDS, TIMES)).map(lambda word: (word, 1))


def all_acked() -> bool:
    return len(set(ACKED["in"])) == len(WORDS)


def expected(*, but: str = "", since_ms: int = 0) -> Counter[Any]:
    return Counter((t // HOUR, w) for w, t in zip(WORDS, TIMES, strict=True) if w != but and t >= since_ms)


def test_a_store_has_sums_by_batch_and_key_and_what_it_cannot_hold_is_set_aside(
    tmp_path: Path, memory: type[Memory]
) -> None:
    builder, pairs = program()
    pairs.set_num_partitions(3).to_store("counts", Sum(), Memory())
    run(builder, job(tmp_path), until=all_acked)
    assert memory.rows == expected(but="c")
    assert memory.writers == {"0", "1", "2"}
    assert (tmp_path / "dead-letter").exists()


def test_a_store_that_does_not_answer_is_asked_again_and_nothing_is_merged_twice(
    tmp_path: Path, memory: type[Memory], caplog: pytest.LogCaptureFixture
) -> None:
    memory.failures = 5
    builder, pairs = program()
    pairs.to_store("counts", Sum(), Memory())
    run(builder, job(tmp_path), until=all_acked)
    assert memory.commits > 5
    assert memory.rows == expected(but="c")
    assert "the store does not answer" in caplog.text


def test_while_an_archive_is_away_its_stage_takes_its_time_so_that_spouts_are_throttled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it took would only wait in memory, and be replayed again and again."""
    pytest.importorskip("pyarrow")

    def fail(_writer: Any) -> int:
        raise UnavailableError("the archive does not answer")

    monkeypatch.setattr("heronpy.archive.ArchiveWriter.commit", fail)
    monkeypatch.setattr("heronpy.streamlet._archive_bolt.ArchiveBolt.commit_every_ms", 10)
    slept = patient(monkeypatch)
    builder = Builder()
    builder.new_source(connectors.ListSource(range(100), repeat=True)).archive()
    run(builder, job(tmp_path), until=lambda: len(slept) > 10)


def test_while_a_live_view_is_away_its_stage_takes_its_time_so_that_spouts_are_throttled(
    tmp_path: Path, memory: type[Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.failures = 1 << 60
    slept = patient(monkeypatch)
    builder = Builder()
    builder.new_source(connectors.ListSource([("a", 1)], repeat=True)).to_store("counts", Sum(), Memory())
    run(builder, job(tmp_path), until=lambda: len(slept) > 10)
    assert memory.rows == Counter()


def patient(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Stages do not sleep: how often they would have."""
    slept: list[float] = []
    sleep = time.sleep

    def note(seconds: float) -> None:
        if seconds == 0.0123:
            slept.append(seconds)
        else:
            sleep(seconds)

    for module in ("_bolts", "_store_bolt"):
        monkeypatch.setattr(f"heronpy.streamlet.{module}.WAIT_S", 0.0123)
    monkeypatch.setattr(time, "sleep", note)
    return slept


def test_live_views_of_another_batch_length_are_refused(tmp_path: Path, memory: type[Memory]) -> None:
    builder, pairs = program()
    pairs.to_store("counts", Sum(), Memory())
    run(builder, job(tmp_path), until=all_acked)
    changed = config()
    changed.set_pipeline(tmp_path, batch_length=60)
    with pytest.raises(ConfigError, match="live views of batches of 3600 s and the program's are 60 s"):
        add_stages(TopologyBuilder("changed"), builder.graph, changed)
    with pytest.raises(ConfigError, match="set the length back"):
        MergedStore(Job.of(Program("changed", changed, builder.graph)), "counts")


def test_what_is_in_batch_views_is_left_out(tmp_path: Path, memory: type[Memory]) -> None:
    write_cut(tmp_path, 2 * HOUR)
    builder, pairs = program()
    pairs.to_store("counts", Sum(), Memory())
    run(builder, job(tmp_path), until=all_acked)
    assert memory.rows == expected(but="c", since_ms=2 * HOUR)


def test_a_reduction_goes_on_from_what_a_batch_job_has_found(tmp_path: Path) -> None:
    write_cut(tmp_path, 2 * HOUR)
    write_states(tmp_path, "count_by_key-1", [("a", 100), ("b", 200), ("nobody", 5)])
    builder, pairs = program()
    pairs.set_num_partitions(2).count_by_key().to_sink(ListSink())
    run(builder, job(tmp_path), until=lambda: all_acked() and len(WRITTEN["out"]) >= 10)
    last = dict(sorted(WRITTEN["out"], key=lambda pair: pair[1]))
    late = Counter(w for w, t in zip(WORDS, TIMES, strict=True) if t >= 2 * HOUR)
    assert last == {"a": 100 + late["a"], "b": 200 + late["b"], "c": late["c"]}


def test_every_task_begins_with_the_keys_that_are_sent_to_it(tmp_path: Path) -> None:
    words = [f"word {n}" for n in range(40)]
    write_states(tmp_path, "count_by_key-1", [(word, 100) for word in words])
    builder = Builder()
    pairs = builder.new_source(ListSource("in", words)).set_num_partitions(3).map(lambda word: (word, 1))
    pairs.count_by_key().to_sink(ListSink())
    run(builder, job(tmp_path), until=lambda: len(WRITTEN["out"]) >= 40)
    assert dict(WRITTEN["out"]) == dict.fromkeys(words, 101)


def test_states_and_cut_come_back(tmp_path: Path) -> None:
    assert read_cut(tmp_path) is None
    assert list(read_states(tmp_path, "sums")) == []
    write_cut(tmp_path, 42)
    write_states(tmp_path, "sums", ((n, (n, "x")) for n in range(2500)))
    assert read_cut(tmp_path) == 42
    assert list(read_states(tmp_path, "sums")) == [(n, (n, "x")) for n in range(2500)]
    assert not list(tmp_path.rglob("*.part"))


def test_programs_that_hold_tuples_get_room_and_time(tmp_path: Path) -> None:
    builder, pairs = program()
    pairs.to_store("counts", Sum(), Memory())
    made = topology_settings(builder.graph, {}, job(tmp_path))
    assert made["topology.reliability.mode"] == "ATLEAST_ONCE"
    assert made["topology.max.spout.pending"] == 50_000
    assert (
        topology_settings(builder.graph, {"topology.max.spout.pending": 7}, job(tmp_path))["topology.max.spout.pending"]
        == 7
    )
    plain, source = Builder(), None
    source = plain.new_source(ListSource("in", []))
    source.log()
    assert topology_settings(plain.graph, {}, Config()) == {"topology.reliability.mode": "ATMOST_ONCE"}


def test_an_archive_has_every_element_with_its_id(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    ACKED.clear()
    builder = Builder()
    source = builder.new_source(ListSource("in", WORDS, TIMES)).set_num_partitions(2)
    halves = source.flat_map(lambda word: [word, word * 2]).archive()
    halves.map(str.upper).to_sink(ListSink())
    run(builder, job(tmp_path), until=lambda: all_acked() and len(WRITTEN["out"]) == 60)
    files = sorted((tmp_path / "archive" / "events").glob("batch=*/*.parquet"))
    assert {file.parent.name for file in files} == {"batch=0", "batch=1", "batch=2"}
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert len(rows) == 60
    ids = {value for row in rows for value in row.values() if isinstance(value, str) and value.startswith("in:")}
    assert ids == {f"in:{n}/{part}" for n in range(30) for part in (0, 1)}
