"""A job whose batch runs are killed, and what they must have computed: all batches, from all rows that are archived.

Spark is left out: its tasks run in this process, one after the other. All that is read, written and committed is as
with it. A run is killed before one of its file operations; from then on it does none.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.archive import Archive, ArchiveWriter
from heronpy.checkpoints import check_storage_name
from heronpy.connectors import ListSource
from heronpy.filesystem import Location, files_of
from heronpy.pipeline import (
    Job,
    Manifest,
    MergedStore,
    RunReport,
    ViewReader,
    changes,
    compaction,
    leftovers,
    run,
    running,
)
from heronpy.pipeline.leftovers import search
from heronpy.pipeline.manifest import HISTORY
from heronpy.stores import SqliteStore
from heronpy.streamlet import Builder, Config, Sum, WindowConfig
from heronpy.streamlet.runner import Program
from tests.chaos.inline_spark import inline_session
from tests.unit.memory_storage import MemoryStorage

LENGTH_MS = 10_000
WINDOW_MS = 15_000
_OPERATIONS = ("replace", "rename", "link", "unlink", "mkdir", "rmdir")
Rows = dict[str, tuple[str, int]]
"""Key and time by id."""


class Killed(BaseException):
    """As by kill -9: nothing that catches errors catches it."""


class Operations:
    """Counts operations that change files; before one of them the process is killed, or something is done."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.kill_at: int | None = None
        self.before: Callable[[], None] | None = None
        self._busy = False
        for name in _OPERATIONS:
            patch.setattr(os, name, self._counted(getattr(os, name)))
        patch.setattr(os, "open", self._opened(os.open))
        patch.setattr(os, "fsync", lambda fd: None)

    @contextlib.contextmanager
    def watched(self, kill_at: int | None = None, before: Callable[[], None] | None = None) -> Iterator[None]:
        """Inside, operations are counted from 0."""
        self.count, self.kill_at, self.before = 0, kill_at, before
        try:
            yield
        finally:
            self.kill_at = self.before = None

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.next()
            return call(*args, **kwargs)

        return counted

    def _opened(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
            if flags & os.O_CREAT:
                self.next()
            return call(path, flags, *args, **kwargs)

        return opened

    def next(self) -> None:
        if self._busy:
            return
        self.count += 1
        if self.kill_at is not None and self.count > self.kill_at:
            raise Killed
        if self.before is not None:
            self._busy = True
            try:
                self.before()
            finally:
                self._busy = False


class MemoryStore(MemoryStorage):
    """A store whose requests that change something are counted."""

    def __init__(self, operations: Operations) -> None:
        super().__init__()
        self._operations = operations

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        self._operations.next()
        super().put(name, chunks)

    def create(self, name: str, data: bytes) -> bool:
        self._operations.next()
        if name in self.stored:
            return False
        self.stored[check_storage_name(name)] = data
        return True

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._operations.next()
            super().delete([name])


class World:
    """A job, its archives, and what is in them."""

    def __init__(
        self,
        directory: Location,
        *,
        archives: int = 1,
        windows: bool = False,
        reduced: bool = False,
        behind: str = "",
        live: Path | None = None,
        first: int = 0,
        keys: int = 3,
        slide_ms: int = 0,
        archives_in: Location | None = None,
    ) -> None:
        """Nothing is archived yet.

        Args:
            directory: the job's.
            archives: how many there are.
            windows: whether there is a view of windows.
            reduced: whether there are views of reductions over everything, before and after windows.
            behind: what follows from these: "nested", another reduction; "union", also elements that are not reduced;
                "both".
            live: of the live view, if there is one.
            first: the number of the first row. Key, time and whether it is written twice follow from a row's number.
            keys: how many there are.
            slide_ms: how far from one window to the next; 0: from its beginning to its end.
            archives_in: where they are; None: in the job's directory.
        """
        self._archives_in = archives_in
        self.directory = directory
        self._live = None if live is None else SqliteStore(live)
        self.archives, self.windows, self.reduced, self.behind = archives, windows, reduced, behind
        self.views = ["counts", "again"]
        self._keys, self._slide_ms = keys, slide_ms
        self._numbers = itertools.count(first)
        self.rows: list[Rows] = [{} for _ in range(archives)]
        """By archive, all that was ever written."""
        self.upto = -1
        """Batches up to this one are complete."""
        self._writers: list[ArchiveWriter] = []
        self.write()

    @property
    def job(self) -> Job:
        builder, config = Builder(), Config()
        streams = [
            builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(
                None if self._archives_in is None else self._archives_in / f"events{i}", name=f"events{i}"
            )
            for i in range(self.archives)
        ]
        words = streams[0]
        for other in streams[1:]:
            words = words.union(other)
        pairs = words.map(_pair).set_name("pairs")
        for view in self.views:
            pairs.to_store(view, Sum())
        window = WindowConfig(WINDOW_MS / 1000, (self._slide_ms or WINDOW_MS) / 1000)
        if self.windows:
            pairs.reduce_by_key_and_window(window, _add).set_name("w").to_store("windows", Sum())
        if self.reduced:
            so_far = pairs.reduce_by_key(_add).set_name("r")
            so_far.to_store("so-far", Sum())
            so_far.reduce_by_key_and_window(window, _add).set_name("rw").to_store("windows-of-these", Sum())
            of_windows = pairs.reduce_by_key_and_window(window, _add).set_name("u").map(_of_key)
            of_windows.reduce_by_key(_add).set_name("ur").to_store("from-windows", Sum())
            if self.behind in ("nested", "both"):
                so_far.map(_itself).reduce_by_key(_add).set_name("rr").to_store("of-these", Sum())
            if self.behind in ("union", "both"):
                so_far.union(pairs).set_name("ru").to_store("united", Sum())
        config.set_pipeline(self.directory, batch_length=LENGTH_MS // 1000, live=self._live)
        return Job.of(Program("model", config, builder.graph))

    def archive(self, index: int = 0) -> Archive:
        return Archive((self._archives_in or self.directory / "archive") / f"events{index}")

    def write(self, *batches: int, archive: int = 0, count: int = 1, upto: int | None = None) -> None:
        """Commit so many rows of each batch to an archive, some of them twice."""
        while len(self._writers) < self.archives:
            path = self.archive(len(self._writers)).directory
            self._writers.append(
                ArchiveWriter(path, task="0", batch_length_ms=LENGTH_MS, codec="columns", dead_letter=_refuse, run="r")
            )
        writer, rows = self._writers[archive], self.rows[archive]
        for batch in batches:
            for _ in range(count):
                n = next(self._numbers)
                rows[f"e{n}"] = key, time_ms = f"k{n % self._keys}", batch * LENGTH_MS + (n * 7919) % LENGTH_MS
                for _ in range(2 if n % 5 == 0 else 1):
                    writer.add(f"e{n}", time_ms, key)
        writer.commit()
        self.upto = self.upto if upto is None else max(self.upto, upto)
        for each in self._writers:
            each.progress((self.upto + 1) * LENGTH_MS)

    def files(self, batch: int, archive: int = 0) -> list[Path]:
        return [Path(str(file.path)) for file in self.archive(archive).files_of_batch(batch)]

    def run(self, **options: Any) -> RunReport:
        return run(self.job, master="local[2]", **options)

    def expected(self) -> dict[str, dict[int, Counter[Any]]]:
        """By view and batch, what all archived rows make."""
        counts: dict[int, Counter[Any]] = defaultdict(Counter)
        windows: dict[int, Counter[Any]] = defaultdict(Counter)
        for key, time_ms in (row for rows in self.rows for row in rows.values()):
            counts[time_ms // LENGTH_MS][key] += 1
            for batch, window in self._windows_of(time_ms):
                windows[batch][key, window] += 1
        made = {view: dict(counts) for view in self.views}
        made |= {"windows": dict(windows)} if self.windows else {}
        return made | (self._expected_reduced(counts, windows) if self.reduced else {})

    def _windows_of(self, time_ms: int) -> Iterator[tuple[int, tuple[float, float]]]:
        """The windows that a time is in, each with the batch of its result."""
        slide_ms = self._slide_ms or WINDOW_MS
        for begin in range(time_ms // slide_ms * slide_ms, time_ms - WINDOW_MS, -slide_ms):
            yield (begin + WINDOW_MS - 1) // LENGTH_MS, (begin / 1000, (begin + WINDOW_MS) / 1000)

    def _expected_reduced(
        self, counts: dict[int, Counter[Any]], windows: dict[int, Counter[Any]]
    ) -> dict[str, dict[int, Counter[Any]]]:
        last: dict[tuple[int, str], int] = {}
        for key, time_ms in (row for rows in self.rows for row in rows.values()):
            at = time_ms // LENGTH_MS, key
            last[at] = max(time_ms, last.get(at, time_ms))
        so_far, of_these, from_windows = ({}, defaultdict(Counter), {})  # type: ignore[var-annotated]
        total, total_of_windows = Counter[Any](), Counter[Any]()
        for batch in sorted(counts):
            total += counts[batch]
            so_far[batch] = Counter({key: total[key] for key in counts[batch]})
            for key, value in so_far[batch].items():
                for of, window in self._windows_of(last[batch, key]):
                    of_these[of][key, window] += value
        for batch in sorted(windows):
            here: Counter[Any] = Counter()
            for (key, _), value in windows[batch].items():
                here[key] += value
            total_of_windows += here
            from_windows[batch] = Counter({key: total_of_windows[key] for key in here})
        made = {"so-far": so_far, "windows-of-these": dict(of_these), "from-windows": from_windows}
        if self.behind in ("nested", "both"):
            total_of_these, nested = Counter[Any](), {}
            for batch in sorted(so_far):
                total_of_these += so_far[batch]
                nested[batch] = Counter({key: total_of_these[key] for key in so_far[batch]})
            made["of-these"] = nested
        if self.behind in ("union", "both"):
            made["united"] = {batch: so_far[batch] + counts[batch] for batch in so_far}
        return made

    def found(self, view: str) -> dict[int, Counter[Any]]:
        with contextlib.closing(ViewReader(self.directory, view, Sum())) as reader:
            return {batch: rows for batch in reader.batches() if (rows := Counter(dict(reader.items(batch))))}

    def check(self, upto: int | None = None) -> None:
        """Every view has of each batch that is done what all rows make: by batch, in total and by key."""
        upto = self.upto if upto is None else upto
        for view, batches in self.expected().items():
            wanted = {batch: rows for batch, rows in batches.items() if batch <= upto}
            found = self.found(view)
            differing = {n: (found.get(n), wanted.get(n)) for n in {*found, *wanted} if found.get(n) != wanted.get(n)}
            assert not differing, f"{view}: {differing}"
            total = sum(wanted.values(), Counter[Any]())
            with MergedStore(self.job, view, exact_only=True) as store:
                assert store.committed_watermark == upto or not wanted
                assert Counter({_plain(key): value for key, value in store.items()}) == total
                assert {key: store.get(key) for key in total} == total

    def check_read(self, history: Mapping[str, Mapping[int, Sequence[Counter[Any]]]]) -> None:
        """What can be read now is of each batch what all rows made at some time, and in total as much.

        Args:
            history: by view and batch, what they made, since runs began.
        """
        manifest = Manifest.load(self.directory)
        upto = manifest.committed_watermark
        if upto is None:
            return
        for view in self.views:
            if manifest.lacking(view, upto):
                continue
            with MergedStore(self.job, view, exact_only=True) as store:
                total = Counter({_plain(key): value for key, value in store.items()})
                assert {key: store.get(key) for key in total} == total
            found = {batch: rows for batch, rows in self.found(view).items() if batch <= upto}
            assert total == sum(found.values(), Counter[Any]())
            for batch, rows in found.items():
                assert rows in history[view][batch], (view, batch, rows)

    def check_settled(self) -> None:
        """A run has nothing to do, and nothing is left of those before."""
        assert self.run().batches == []
        assert self.run(everything=True).batches == []
        manifest, files = Manifest.load(self.directory), files_of(self.directory)
        assert not (left := search(self.directory, manifest)), [str(path) for path in left]
        for index in range(self.archives):
            archive = self.archive(index)
            said = archive.announced() if self._archives_in is None else []  # elsewhere, another job may take them
            assert not [one for one in said if one.name in archive.noted(archive.files_of_batch(one.batch))]
        assert {file.path.name for file in files.listed(self.directory / HISTORY)} == manifest.segment_files()
        for segment in Manifest.load(self.directory).batches.segments():
            done = dict(manifest.batches.where(lambda other, name=segment.name: other.name == name))
            assert segment.done == len(done)
            assert segment.elements == sum(batch.elements for batch in done.values())
        for index, node in enumerate(self.job.archives().values()):
            name = node.stage
            seen = dict(manifest.batches.seen_from(name, None))
            summed = [segment.seen[name].rows for segment in manifest.batches.segments() if name in segment.seen]
            assert sum(summed) == sum(one.rows for one in seen.values())
            there = {n: len(files) for n, files in self.archive(index).batches().items()}
            assert there == {n: one.files for n, one in seen.items()}


def _plain(key: Any) -> Any:
    return (key.key, tuple(key.window)) if hasattr(key, "window") else key


def _pair(word: str) -> tuple[str, int]:
    return word, 1


def _of_key(windowed: Any) -> tuple[str, int]:
    keyed, value = windowed
    return keyed.key, value


def _itself(pair: Any) -> Any:
    return pair


def _add(a: int, b: int) -> int:
    return a + b


def _refuse(*what: Any) -> None:
    raise AssertionError(what)


def model(patch: pytest.MonkeyPatch, *, long: bool = True) -> Operations:
    """Without Spark; a few batches are many, if `long`."""
    for module in (running, compaction):
        patch.setattr(module, "spark_session", inline_session)
    if long:
        patch.setattr(changes, "LISTED_BATCHES", 0)
        patch.setattr(changes, "_IN_TURN", 2)
        patch.setattr(leftovers, "_SEARCHED_BATCHES", 0)
    return Operations(patch)
