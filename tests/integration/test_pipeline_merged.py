"""Merged reads: batch views up to N and live views after N, also while batch runs replace what is read."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronpy.errors import NotFoundError, StateError, UnavailableError
from heronpy.hashing import stable_hash
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import MANIFEST_FILE, Batch, Manifest, Parts
from heronpy.pipeline.memory import Memory
from heronpy.pipeline.merged import MergedStore
from heronpy.pipeline.parts import part_name
from heronpy.stores import Store, StoreContext, StoreReader, StoreWriter, encode_key, store_at
from heronpy.stores.sqlite_reader import SqliteReader
from heronpy.streamlet import (
    Builder,
    Config,
    HyperLogLog,
    KeyedWindow,
    Mean,
    Monoid,
    SetUnion,
    Sum,
    Window,
    WindowConfig,
)
from heronpy.streamlet.runner import Program
from heronpy.testing.postgres import PostgresServer, postgres_missing
from heronpy.testing.servers import RedisServer, redis_missing

PARTS = 2


def numbers() -> int:
    return 1


class Pipeline:
    """A job with a view `counts`, whose batch side is written by hand."""

    def __init__(self, directory: Path, monoid: Monoid, live: Store | None = None) -> None:
        builder = Builder()
        source = builder.new_source(numbers).event_time(float).archive()
        source.to_store("counts", monoid)
        source.reduce_by_key_and_window(WindowConfig.create_tumbling_window(60), max).to_store("windows", Sum())
        config = Config()
        config.set_pipeline(directory, batch_length=60, live=live)
        self.job = Job.of(Program("words", config, builder.graph))
        self.directory = directory
        self.monoid = monoid
        self.manifest = Manifest(60_000)
        self._versions = 0

    def done(self, batch: int, values: Mapping[Any, list[Any]], view: str = "counts") -> None:
        """What a batch run leaves, up to its new manifest; the batches before are done, too."""
        self._versions += 1
        version = f"v{self._versions}"
        rows: list[dict[bytes, bytes]] = [{} for _ in range(PARTS)]
        for key, some in values.items():
            rows[stable_hash(key) % PARTS][encode_key(key)] = self.monoid.encode(of(self.monoid, some))
        folder = self.directory / "views" / view / f"batch={batch}" / version
        folder.mkdir(parents=True)
        for index, part in enumerate(rows):
            if part:
                table = pa.table({"key": sorted(part), "value": [part[key] for key in sorted(part)]})
                pq.write_table(table, folder / part_name(index))
        parts = Parts(rows=len(values), part_rows=[len(part) for part in rows])
        self.manifest.batches[batch] = Batch(version, "", views={view: parts})
        self.manifest.committed_watermark = max(batch, self.manifest.committed_watermark or batch)
        self.manifest.save(self.directory)

    def forget_old_versions(self) -> None:
        for batch, done in self.manifest.batches.items():
            for version in (self.directory / "views" / "counts" / f"batch={batch}").iterdir():
                if version.name != done.version:
                    shutil.rmtree(version)

    def context(self, view: str = "counts") -> StoreContext:
        return StoreContext(view=view, monoid=self.job.stores()[view].monoid, directory=self.directory)

    def writer(self, view: str = "counts") -> StoreWriter:
        return self.job.stores()[view].store.writer(self.context(view), "task-0")

    def live(self, batch: int, values: Mapping[Any, list[Any]], view: str = "counts") -> None:
        """What a topology has committed."""
        with contextlib.closing(self.writer(view)) as writer:
            for key, some in values.items():
                writer.merge(key, of(self.monoid, some), batch)
            writer.commit()

    def drop_live(self, upto: int) -> None:
        with contextlib.closing(self.job.stores()["counts"].store.reader(self.context())) as reader:
            reader.drop(upto)


def of(monoid: Monoid, values: list[Any]) -> Any:
    acc = monoid.lift(values[0])
    for value in values[1:]:
        acc = monoid.add(acc, value)
    return acc


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of live views by kind; servers that are not here are left out."""
    urls = {}
    with contextlib.ExitStack() as stack:
        if redis_missing() is None:
            urls["redis"] = stack.enter_context(RedisServer(tmp_path_factory.mktemp("redis"))).url
        if postgres_missing() is None:
            postgres = stack.enter_context(PostgresServer(tmp_path_factory.mktemp("postgres")))
            urls["postgres"] = postgres.url.replace("+psycopg", "")
        yield urls


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path, Sum())


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    """With live views of each kind."""
    if request.param == "sqlite":
        return Pipeline(tmp_path, Sum())
    if (missing := {"redis": redis_missing, "postgres": postgres_missing}[request.param]()) is not None:
        pytest.skip(missing)
    urls = request.getfixturevalue("servers")
    mark = "&" if "?" in urls[request.param] else "?"
    return Pipeline(tmp_path, Sum(), store_at(f"{urls[request.param]}{mark}prefix={uuid.uuid4().hex}"))


def test_merged_reads_are_the_same_wherever_live_views_are(anywhere: Pipeline) -> None:
    pipeline = anywhere
    key = KeyedWindow("a", Window(0.0, 60.0))
    with MergedStore(pipeline.job, "counts") as counts:
        assert (counts.get("a"), list(counts.items()), counts.committed_watermark) == (None, [], None)
        for batch in (1, 2, 3, 4):
            pipeline.live(batch, {"a": [100], "live": [1], key: [1, 2]})
        assert counts.get("a") == 400
        pipeline.done(1, {"a": [1], "gone": [5]})
        pipeline.done(2, {"a": [2]})
        expected = {"a": 202 + 1, "gone": 5, "live": 2, ("a", (0.0, 60.0)): 6}
        for upto in (None, 1, 2):  # what batch views cover may be there, or not
            if upto is not None:
                pipeline.drop_live(upto)
            assert dict(counts.items()) == expected
            assert {key: counts.get(key) for key in expected} == expected
            explained = counts.explain("a")
            assert (explained.upto, explained.batch, explained.live, explained.merged) == (2, 3, 200, 203)
        pipeline.done(3, {"a": [7]})
        assert counts.get("a") == 110
    with MergedStore(pipeline.job, "counts", exact_only=True) as exact:
        assert dict(exact.items()) == {"a": 10, "gone": 5}


@pytest.fixture
def counts(pipeline: Pipeline) -> Iterator[MergedStore]:
    with MergedStore(pipeline.job, "counts") as counts:
        yield counts


def test_a_view_that_was_never_written_is_empty(counts: MergedStore) -> None:
    assert counts.get("a") is None
    assert counts.committed_watermark is None
    assert list(counts.items()) == []
    assert counts.explain("a").merged is None


def test_without_batch_runs_everything_is_live(pipeline: Pipeline, counts: MergedStore) -> None:
    pipeline.live(1, {"a": [1, 2]})
    pipeline.live(2, {"a": [4]})
    assert counts.get("a") == 7
    assert dict(counts.items()) == {"a": 7}


def test_closed_batches_come_from_the_batch_side_and_later_ones_are_live(
    pipeline: Pipeline, counts: MergedStore
) -> None:
    for batch in (1, 2, 3):
        pipeline.live(batch, {"a": [100], "live": [1]})
    pipeline.done(1, {"a": [1], "gone": [5]})
    pipeline.done(2, {"a": [2]})
    assert counts.get("a") == 103
    assert counts.get("gone") == 5
    assert counts.get("live") == 1
    explained = counts.explain("a")
    assert (explained.upto, explained.batch, explained.live, explained.merged) == (2, 3, 100, 103)
    assert counts.explain("gone").live is None
    assert dict(counts.items()) == {"a": 103, "gone": 5, "live": 1}


def test_exact_only_leaves_the_live_side_out(pipeline: Pipeline) -> None:
    for batch in (1, 2):
        pipeline.live(batch, {"a": [1, 2, 3], "live": [1]})  # a running count, all of its values
    with MergedStore(pipeline.job, "counts", exact_only=True) as store:
        assert store.get("a") is None
        pipeline.done(1, {"a": [3]})
        assert (store.get("a"), store.get("live"), store.committed_watermark) == (3, None, 1)
        assert dict(store.items()) == {"a": 3}
        explained = store.explain("a")
        assert (explained.upto, explained.batch, explained.live, explained.merged) == (1, 3, None, 3)


def test_dropping_closed_batches_of_the_live_side_changes_nothing(pipeline: Pipeline, counts: MergedStore) -> None:
    for batch in (1, 2, 3):
        pipeline.live(batch, {"a": [100]})
    pipeline.done(2, {"a": [7]})
    assert counts.get("a") == 107
    pipeline.drop_live(2)
    assert counts.get("a") == 107
    assert dict(counts.items()) == {"a": 107}


def test_a_store_that_is_open_for_long_sees_new_runs(pipeline: Pipeline, counts: MergedStore) -> None:
    pipeline.live(1, {"a": [100]})
    assert counts.get("a") == 100
    pipeline.done(1, {"a": [1]})
    assert counts.get("a") == 1
    pipeline.live(2, {"a": [10]})
    assert counts.get("a") == 11
    pipeline.done(1, {"a": [2]})
    pipeline.forget_old_versions()
    assert counts.get("a") == 12
    assert counts.committed_watermark == 1


def test_a_batch_that_a_run_has_written_but_not_finished_does_not_count(
    pipeline: Pipeline, counts: MergedStore
) -> None:
    pipeline.live(1, {"a": [100]})
    pipeline.done(1, {"a": [1]})
    pipeline.manifest.committed_watermark = 0
    pipeline.manifest.save(pipeline.directory)
    assert counts.get("a") == 100
    assert dict(counts.items()) == {"a": 100}


def test_reads_during_runs_never_count_twice_nor_miss_a_batch(pipeline: Pipeline, counts: MergedStore) -> None:
    for batch in range(40):
        pipeline.live(batch, {"a": [1]})
    over = threading.Event()

    def gets() -> int:
        reads = 0
        while not over.is_set() or reads < 3:
            explained = counts.explain("a")
            assert explained.merged == 40, explained
            reads += 1
        return reads

    def scans() -> int:
        reads = 0
        while not over.is_set() or reads < 3:
            assert dict(counts.items()) == {"a": 40}
            reads += 1
        return reads

    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(gets), threads.submit(scans)]
        try:
            for batch in range(30):
                pipeline.done(batch, {"a": [1]})
                if batch:
                    pipeline.done(batch - 1, {"a": [1]})  # computed again
                pipeline.forget_old_versions()
                pipeline.drop_live(batch)
        finally:
            over.set()
        assert all(reader.result(300) >= 3 for reader in readers)


def test_a_run_in_the_middle_of_a_scan_is_noticed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in (1, 2):
        pipeline.live(batch, {"a": [1]})
    live = SqliteReader(pipeline.context(), durable=False)
    scanned = live.items
    scans = []

    def finish_a_run_and_scan(batch: int) -> Iterator[tuple[Any, Any]]:
        scans.append(batch)
        if len(scans) == 1:
            pipeline.done(1, {"a": [1]})
            pipeline.drop_live(1)
        return scanned(batch)

    monkeypatch.setattr(live, "items", finish_a_run_and_scan)
    monkeypatch.setattr(pipeline.job.stores()["counts"].store, "reader", lambda context: live)
    with MergedStore(pipeline.job, "counts") as counts:
        assert dict(counts.items()) == {"a": 2}
    assert scans == [1, 2, 2], "closed batches are not read again"


@pytest.mark.parametrize(
    ("monoid", "batch", "live", "merged"),
    [
        (Mean(), [1, 2], [6], 3),
        (SetUnion(), ["a", "b"], ["b", "c"], {"a", "b", "c"}),
        (HyperLogLog(), ["a", "b"], ["b", "c"], 3),
    ],
    ids=["mean", "set", "hyperloglog"],
)
def test_parts_are_merged_as_accumulators_not_as_results(
    tmp_path: Path, monoid: Monoid, batch: list[Any], live: list[Any], merged: Any
) -> None:
    pipeline = Pipeline(tmp_path, monoid)
    pipeline.done(1, {"k": batch})
    pipeline.live(2, {"k": live})
    with MergedStore(pipeline.job, "counts") as store:
        for _ in range(2):  # merging must not change what is kept
            assert store.get("k") == merged
            assert store.explain("k").merged == merged
        assert dict(store.items()) == {"k": merged}


def test_keys_of_windows_are_windows_again(pipeline: Pipeline) -> None:
    key = KeyedWindow("a", Window(0.0, 60.0))
    pipeline.done(0, {key: [1]}, "windows")
    pipeline.live(1, {key: [2]}, "windows")
    with MergedStore(pipeline.job, "windows") as windows:
        assert windows.get(key) == windows.get(("a", (0, 60))) == 3
        ((found, value),) = windows.items()
        assert (found.key, found.window.end, value) == ("a", 60.0, 3)


def test_more_keys_than_are_held_in_memory(
    pipeline: Pipeline, counts: MergedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "is_full", lambda self: True)
    pipeline.done(1, {n: [1] for n in range(1000)})
    pipeline.live(2, {n: [1] for n in range(500, 1500)})
    found = list(counts.items())
    assert len(found) == 1500
    assert dict(found) == {n: 2 if 500 <= n < 1000 else 1 for n in range(1500)}


def test_a_full_disk_under_more_keys_than_are_held_in_memory_is_one_line(
    pipeline: Pipeline, counts: MergedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> IO[bytes]:
        return Path("/dev/full").open("r+b")

    monkeypatch.setattr(Memory, "is_full", lambda self: True)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    pipeline.done(1, {"a": [1]})
    with pytest.raises(UnavailableError, match=r"view counts cannot be read: .*No space left") as raised:
        list(counts.items())
    assert tempfile.gettempdir() in str(raised.value)


def test_an_unknown_view_is_refused_with_the_nearest(pipeline: Pipeline) -> None:
    with pytest.raises(NotFoundError, match="job words has no view 'count'; did you mean 'counts'"):
        MergedStore(pipeline.job, "count")


def test_missing_files_and_a_damaged_manifest_are_named(pipeline: Pipeline, counts: MergedStore) -> None:
    pipeline.done(1, {"a": [1]})
    shutil.rmtree(pipeline.directory / "views" / "counts" / "batch=1")
    with pytest.raises(StateError, match="batch=1"):
        counts.get("a")
    (pipeline.directory / MANIFEST_FILE).write_text("{")
    with pytest.raises(StateError, match="manifest"):
        counts.get("a")


def test_a_reader_is_closed_with_its_block(pipeline: Pipeline) -> None:
    closed = []

    class Reader(StoreReader):
        def close(self) -> None:
            closed.append(True)

        get = batches = items = replace = drop = None  # type: ignore[assignment]  # not called

    pipeline.job.stores()["counts"].store.reader = lambda context: Reader()  # type: ignore[method-assign]
    with MergedStore(pipeline.job, "counts"):
        assert not closed
    assert closed == [True]
