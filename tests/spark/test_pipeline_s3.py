"""Batch runs whose files are in S3: a real server."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_lists import Lists
from pipeline_program import archive

from heronpy.archive import Archive, dead_letter_counts
from heronpy.connectors import TextSink
from heronpy.errors import AlreadyExistsError, DamagedInputError, FencedError, NotFoundError, StateError
from heronpy.filesystem import Location, files_of, location
from heronpy.pipeline import Job, Manifest, MergedStore, ViewReader, bootstrap, run, states
from heronpy.pipeline.compaction import compact
from heronpy.pipeline.manifest import lock
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.bootstrap import read_cut, read_states
from heronpy.streamlet.runner import Program
from heronpy.testing.servers import S3Server, s3_missing

pyspark = pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("spark"),
    pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or ""),
]

_NUMBERS = itertools.count()
ROWS = [(f"w{i % 7} w{i % 3}", i * 100, f"id-{i}") for i in range(300)]
END_MS = 30_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def place(server: S3Server, s3_credentials: None) -> Location:
    return location("it", server.url("jobs")) / str(next(_NUMBERS))


def counts(rows: list[tuple[str, int, str]]) -> dict[int, dict[str, int]]:
    batches: dict[int, Counter[str]] = {}
    for line, time_ms, _ in {name: (line, time_ms, name) for line, time_ms, name in rows}.values():
        batches.setdefault(time_ms // 10_000, Counter()).update(line.split())
    return {batch: dict(words) for batch, words in batches.items()}


def job_at(directory: Any, archived: Any = None) -> Job:
    builder = Builder()
    words = builder.new_source(Lists()).archive(archived).flat_map(str.split)
    words.map(lambda word: (word, 1)).to_store("counts", Sum())
    config = Config()
    config.set_pipeline(directory, batch_length=10)
    return Job.of(Program("stored", config, builder.graph))


def view_of(job: Job) -> dict[int, dict[str, int]]:
    reader = ViewReader(job.directory, "counts", Sum())
    return {batch: rows for batch in reader.batches() if (rows := dict(reader.items(batch)))}


@pytest.mark.long
def test_an_archive_in_s3_is_computed_exactly_and_again_when_it_is_late(place: Location, tmp_path: Path) -> None:
    job = job_at(tmp_path, place / "archive" / "events")
    archive(place, ROWS)
    archive(place, ROWS[:40], task="t-1")
    report = run(job, until_ms=END_MS)
    assert (report.batches, report.elements, report.duplicates) == ([0, 1, 2], 300, 40)
    assert view_of(job) == counts(ROWS)
    late = [("w1 late", 15_000, "late")]
    archive(place, late)
    assert run(job, until_ms=END_MS).batches == [1]
    assert view_of(job) == counts(ROWS + late)


@pytest.mark.long
def test_a_file_that_is_gone_or_damaged_closes_no_batch(place: Location, tmp_path: Path) -> None:
    job = job_at(tmp_path, place / "archive" / "events")
    archive(place, ROWS)
    files = files_of(place)
    (file,) = files.listed(place / "archive" / "events" / "batch=1")
    files.write(file.path, files.read(file.path)[:-40])
    with pytest.raises(DamagedInputError, match="cannot be done: s3://jobs"):
        run(job, until_ms=END_MS)
    assert view_of(job).keys() == {0, 2}


@pytest.mark.long
def test_views_in_s3_are_exact_rolled_up_and_only_the_newest_stay(place: Location) -> None:
    job = job_at(place)
    rows = [(f"w{i % 3}", i * 1000, str(i)) for i in range(250)]
    archive(place, rows)
    assert run(job, until_ms=250_000).batches == list(range(25))
    manifest = Manifest.load(place)
    assert [tier.upto for tier in manifest.tiers["counts"]] == [15]
    assert dict(ViewReader(place, "counts", Sum()).totals()) == {"w0": 84, "w1": 83, "w2": 83}
    assert run(job, until_ms=250_000).batches == []
    before = ViewReader(place, "counts", Sum())
    archive(place, [("w1", 5_000, "late")])
    assert run(job, until_ms=250_000).batches == [0]
    assert ViewReader(place, "counts", Sum()).get("w1") == 84
    assert before.get("w1") == 84, "who has read the manifest before goes on with the newest"
    found = [path.parts[-3:-1] for path in files_of(place).below(place / "views" / "counts")]
    manifest = Manifest.load(place)
    named = {(f"batch={n}", batch.version) for n, batch in manifest.batches.items()}
    assert set(found) == named | {("base", tier.version) for tier in manifest.tiers["counts"]}


def test_of_two_runs_the_later_one_counts_and_nothing_of_the_earlier_is_seen(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(place, ROWS)
    job = job_at(place)
    run(job, until_ms=10_000)
    asleep = Manifest.load(place, job.batch_length_ms)
    asleep.claim(place)
    assert run(job, until_ms=END_MS).batches == [1, 2]
    asleep.batches.clear()
    with pytest.raises(FencedError, match="another batch run has taken over"):
        asleep.save(place)
    assert view_of(job) == counts(ROWS)
    with lock(place), pytest.raises(AlreadyExistsError, match="another batch run works on s3://jobs"):
        run(job, until_ms=END_MS)
    files_of(place).write(place / "manifest.lock" / "00000000000001-elsewhere-0@1@a.json", b"{}")
    monkeypatch.setattr("heronpy.pipeline._manifest_log._LEASE_S", 0.0)
    assert run(job, until_ms=END_MS).batches == []


@pytest.mark.long
def test_nothing_of_a_run_that_is_fenced_counts_not_even_its_dead_letters(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, config = Builder(), Config()
    lengths = builder.new_source(Lists()).archive().map(lambda line: (line, 1 // (len(line) - 1)))
    lengths.to_store("lengths", Sum())
    config.set_pipeline(place, batch_length=10)
    job = Job.of(Program("fenced", config, builder.graph))
    rows = [("ab", i * 100, f"id-{i}") for i in range(99)] + [("a", 9_950, "bad")]
    archive(place, rows)
    save = Manifest.save

    def save_too_late(manifest: Manifest, directory: Location) -> None:
        Manifest.load(directory).claim(directory)
        save(manifest, directory)

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "save", save_too_late)
        with pytest.raises(FencedError):
            run(job, until_ms=END_MS)
    assert sum(dead_letter_counts(place).values()) == 0
    assert run(job, until_ms=END_MS).dead_letters == 1
    assert sum(dead_letter_counts(place).values()) == 1


@pytest.mark.long
def test_dead_letters_and_sinks_of_a_run_are_in_s3_once(place: Location) -> None:
    def length(word: str) -> int:
        if word == "w3":
            raise ValueError(word)
        return len(word)

    builder = Builder()
    words = builder.new_source(Lists()).archive().flat_map(str.split).map(length)
    words.to_sink(TextSink("unused"))
    config = Config()
    config.set_pipeline(place, batch_length=10)
    job = Job.of(Program("sinks", config, builder.graph))
    rows = [(f"w{i % 20}", i * 100, f"id-{i}") for i in range(300)]
    archive(place, rows)
    for batches in (None, [1]):
        report = run(job, until_ms=END_MS, batches=batches)
        assert report.dead_letters == (15 if batches is None else 5)
        assert sum(dead_letter_counts(place).values()) == 15
        paths = files_of(place).below(place / "sinks")
        assert sum(len(files_of(place).read(path).splitlines()) for path in paths) == 285
        assert {path.suffix for path in paths} == {".txt"}


@pytest.mark.long
def test_a_compacted_archive_has_the_same_rows_in_fewer_files(place: Location) -> None:
    job = job_at(place)
    for part in range(9):
        archive(place, ROWS[part::9], task=f"t-{part}")
    run(job, until_ms=20_000)
    stored = Archive(place / "archive" / "events")
    before = {batch: stored.fingerprint(files) for batch, files in stored.batches().items()}
    writer_of_all = files_of(place)
    writer_of_all.write(
        place / "archive" / "events" / "_progress" / "r@0.json",
        b'{"before_ms": 20000, "ended": false, "tasks": 1, "began_ms": 1}',
    )
    report = compact(job, master="local[2]")
    assert (report.batches, report.files_before, report.files_after, report.rows) == (2, 18, 2, 200)
    stored = Archive(place / "archive" / "events")
    assert [len(files) for files in stored.batches().values()] == [1, 1, 9]
    assert {batch: stored.fingerprint(files) for batch, files in stored.batches().items()} == before
    assert run(job, until_ms=END_MS).batches == [2]
    assert view_of(job) == counts(ROWS)
    assert compact(job, master="local[2]", keep_replaced_s=0).removed == 18
    assert files_of(place).listed(place / "archive" / "events" / "_tmp") == []


@pytest.mark.long
def test_a_topology_begins_with_what_a_bootstrap_has_left_in_s3(place: Location, tmp_path: Path) -> None:
    builder = Builder()
    pairs = builder.new_source(Lists()).archive().flat_map(str.split).map(lambda word: (word, 1))
    pairs.to_store("counts", Sum())
    pairs.reduce_by_key(lambda a, b: a + b).set_name("totals").log()
    config = Config()
    config.set_pipeline(place, batch_length=10, live=str(tmp_path))
    job = Job.of(Program("stored", config, builder.graph))
    archive(place, ROWS)
    with pytest.raises(NotFoundError, match="no closed batch"), states(job):
        pass
    run(job, until_ms=END_MS)
    totals = dict(sum((Counter(words) for words in counts(ROWS).values()), Counter[str]()))
    with states(job) as found:
        assert [dict(found["totals"]) for _ in range(2)] == [totals, totals]
    assert read_cut(place) is None
    for _ in range(2):
        done = bootstrap(job)
        assert (done.before_ms, done.states) == (END_MS, {"totals": len(totals)})
        assert read_cut(place) == END_MS
        assert dict(read_states(place, "totals")) == totals
        assert list(read_states(place, "others")) == []
    left = [path.parts[1:] for path in files_of(place).below(place) if "states" in str(path)]
    assert [parts[0] for parts in left] == ["bootstraps"], "only the newest, and nothing of what was computed for it"
    with MergedStore(job, "counts") as merged:
        assert dict(merged.items()) == totals
    files_of(place).delete(place / "/".join(parts) for parts in left)
    with pytest.raises(StateError, match="run the bootstrap again"):
        list(read_states(place, "totals"))
