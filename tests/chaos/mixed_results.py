"""What the mixed topology is given, and what has become of it in its files and in its table."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from mixed_topology import KEYS, LAG, TABLE, VIEW, WINDOW, counts_of, windows_of

from heronpy.stores import SqliteStore, StoreContext
from heronpy.streamlet import Count
from heronpy.testing import eventually_sync

FILES = 3
CHUNK = 30
PACE_S = 0.1

Row = tuple[str, int, int]


class TooMuch(Exception):
    """Something came more often than it should: waiting does not help."""


class Expected:
    """What the numbers below a count make: windows and timers by their name, and how often each key was counted."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.keys: dict[str, int] = defaultdict(int)

    def extend(self, count: int) -> set[str]:
        """So many more numbers; the windows and timers that they change."""
        changed = set()
        for number in range(self.count, self.count + count):
            key, start = f"key-{number % KEYS}", number - number % WINDOW
            self.keys[f"count {key}"] += 1
            for what, total in ((f"window {start}", number), (f"timer {key} {start + WINDOW}", 0)):
                n, sum_ = self.sums[what]
                self.sums[what] = n + 1, sum_ + total
                changed.add(what)
        self.count += count
        return changed

    def is_complete(self, what: str) -> bool:
        """Whether the watermark must have passed it: every task has had one of the last numbers."""
        _, _, at = what.rpartition(" ")
        end = int(at) + (WINDOW if what.startswith("window") else 0)
        return end <= self.count - KEYS - LAG - WINDOW


class Place:
    """What has come in one place, a row after the other."""

    def __init__(self, name: str, expected: Expected, *, timers: bool = True) -> None:
        self.name, self._expected, self._timers = name, expected, timers
        self.rows = 0
        self._counts: dict[str, set[int]] = defaultdict(set)
        self._sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._open: set[str] = set()
        """Windows and timers that had not all when last looked at. More than all is an error when it comes."""

    def expect(self, changed: Iterable[str]) -> None:
        """Know of windows and timers that are to have more."""
        self._open.update(what for what in changed if self._timers or not what.startswith("timer"))

    def add(self, rows: Iterable[Row]) -> None:
        """Raises TooMuch if one of them is there already, or nothing makes it."""
        for what, n, total in rows:
            self.rows += 1
            if what.startswith("count"):
                if n in self._counts[what] or n > self._expected.keys[what]:
                    raise TooMuch(f"{self.name}: {what} is {n} again, or should not be more than it was")
                self._counts[what].add(n)
                continue
            before, wanted = self._sums[what], self._expected.sums[what]
            now = self._sums[what] = before[0] + n, before[1] + total
            if now > wanted:
                raise TooMuch(f"{self.name}: {what} is {now}, and should be {wanted}")

    def missing(self) -> list[str]:
        """What has not come yet."""
        counts = [what for what, count in self._expected.keys.items() if len(self._counts[what]) < count]
        self._open = {what for what in self._open if self._sums[what] != self._expected.sums[what]}
        return counts + [what for what in self._open if self._expected.is_complete(what)]


class Results:
    """Numbers in, rows out."""

    def __init__(self, directory: Path, disk: Path) -> None:
        """Begin with some numbers and an empty table.

        Args:
            directory: where the input is.
            disk: where the output is.
        """
        self.dir, self.out = directory, disk / "out"
        self.database = disk / "results.db"
        self.expected = Expected()
        self._read: dict[Path, tuple[int, ...]] = {}
        """What the files looked like when they were read."""
        self._digests: dict[Path, bytes] = {}
        self._last_id = 0
        self._files, self._table = Place("files", self.expected), Place("table", self.expected)
        self._streamlet = Place("streamlet", self.expected, timers=False)
        self._places = {self.out: self._files}
        self._places |= dict.fromkeys((counts_of(self.out), windows_of(self.out)), self._streamlet)
        (directory / "in").mkdir()
        self.append(FILES)
        with closing(sqlite3.connect(self.database)) as db:
            db.execute(f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT, n INT, total INT)")
            db.commit()

    @property
    def url(self) -> str:
        return f"sqlite:///{self.database}"

    def append(self, count: int) -> None:
        """So many more numbers, in turn in one of the files each."""
        first = self.expected.count
        changed = self.expected.extend(count)
        for place in (self._files, self._table, self._streamlet):
            place.expect(changed)
        for number in range(FILES):
            lines = [f"{n}\n" for n in range(first, first + count) if n % FILES == number]
            with (self.dir / "in" / f"{number}.txt").open("a") as f:
                f.write("".join(lines))

    def append_until(self, done: threading.Event) -> None:
        """Append numbers at a steady pace."""
        while not done.is_set():
            self.append(CHUNK)
            done.wait(PACE_S)

    def read(self) -> None:
        """Take what has been committed. A file that disappears afterwards is an error."""
        now = {file for place in self._places for file in place.glob("part-*.jsonl")}
        if gone := self._read.keys() - now:
            raise TooMuch(f"committed files are gone: {sorted(gone)}")
        for file in now - self._read.keys():
            self._read[file], data = look_of(file), file.read_bytes()
            self._digests[file] = digest_of(data)
            rows = map(json.loads, data.splitlines())
            self._places[file.parent].add((row["what"], row["n"], row["total"]) for row in rows)
        with closing(sqlite3.connect(self.database, timeout=30)) as db:
            new = db.execute(
                f"SELECT id, what, n, total FROM {TABLE} WHERE id > {self._last_id} ORDER BY id"
            ).fetchall()
            self._last_id = new[-1][0] if new else self._last_id
            self._table.add(row[1:] for row in new)
            rows = db.execute(f"SELECT count(*) FROM {TABLE} WHERE id <= {self._last_id}").fetchone()[0]
            if rows != self._table.rows:
                raise TooMuch(f"table: {rows} rows, of which {self._table.rows} were read when they came")
        for key, n in self.view().items():
            if n > (wanted := self.expected.keys[f"count {key}"]):
                raise TooMuch(f"view: {key} is {n}, and should be {wanted}")

    def view(self) -> dict[str, int]:
        """What the live view has."""
        context = StoreContext(view=VIEW, monoid=Count(), directory=self.dir / "job")
        with closing(SqliteStore().reader(context)) as reader:
            found: Counter[str] = Counter()
            for batch in reader.batches():
                found.update(dict(reader.items(batch)))
            return found

    def wait_more(self, rows: int) -> None:
        """Wait until so many more rows have come out."""
        self.read()
        before = self._files.rows

        def check() -> None:
            self.read()
            assert self._files.rows >= before + rows

        eventually_sync(check)

    def wait_exact(self, within_s: float) -> None:
        """Wait until everything that can be expected is in files and table, and see that nothing is there twice."""

        def check() -> None:
            self.read()
            for place in (self._files, self._table, self._streamlet):
                missing = place.missing()
                assert not missing, f"{place.name}: {len(missing)} are missing, as {missing[:5]}"
            view = {f"count {key}": n for key, n in self.view().items()}
            assert view == self.expected.keys, "the view has not all yet"

        eventually_sync(check, within_s=within_s)
        changed = [file for file, look in self._read.items() if look_of(file) != look]
        assert not changed, f"committed files have changed: {changed}"

    def check_files(self) -> None:
        """See that all files are what they were when they came."""
        changed = [file for file, digest in self._digests.items() if digest_of(file.read_bytes()) != digest]
        assert not changed, f"committed files have changed: {changed}"


def look_of(file: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced."""
    stat = file.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
