"""Writes elements to an archive: one Parquet file per commit and batch id."""

from __future__ import annotations

import os
import pickle
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heronpy.archive._announcements import announce
from heronpy.archive._arrow import pa, pq
from heronpy.archive._progress import Progress
from heronpy.archive._schema import agree, evolve, read_schema
from heronpy.archive.element_types import SchemaMismatch, Type, infer, merge, narrow
from heronpy.archive.encode import encode, encode_mixed
from heronpy.archive.files import TMP, remove_stale, tmp_path
from heronpy.archive.footer import Footer, rows_per_group, write_options
from heronpy.archive.id_hash import hash_sum, id_hashes
from heronpy.archive.mixed import OTHER, widen
from heronpy.errors import ConfigError, HeronError, TupleError, is_shortage
from heronpy.files import sync
from heronpy.filesystem import Location, files_of, location
from heronpy.shown import message, said

DeadLetter = Callable[[str, Any, str], None]
_TASK = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_BATCH = "batch="


_TIME_LIMIT_MS = 253_402_300_800_000
"""The year 10000: later times are some other unit."""


REFUSED_MAX = 100
"""So many elements without a place are set aside in any case …"""
REFUSED_SHARE_MAX = 0.1
"""… more only up to this share of all: beyond it the program is wrong, not the data, and nothing more is taken."""


class _Rows(NamedTuple):
    ids: list[str]
    times_ms: list[int]
    values: list[Any]


class ArchiveWriter:
    """One task's writer. Files appear whole or not at all; killed at any moment, every committed row is there.

    Elements that the archive has no place for go to the dead letters with the reason, at `commit`. Called from one
    thread only.
    """

    def __init__(
        self,
        directory: Location,
        *,
        task: str,
        batch_length_ms: int,
        codec: str,
        dead_letter: DeadLetter,
        run: str = "",
        tasks: int = 1,
    ) -> None:
        """Open an archive, and create it if it is new.

        Args:
            directory: the archive's.
            task: who writes: unique among the tasks of a run; part of file names.
            batch_length_ms: a batch id is the time divided by this.
            codec: "columns" or "pickle".
            dead_letter: `dead_letter(where, row, reason)`.
            run: which run of the topology this is, the same in all of its tasks; the next one has another.
            tasks: how many tasks of the run write to this archive: it is complete when all of them say so.

        Raises:
            ConfigError: the archive has another codec or batch length, or a name cannot be part of a path.
            HeronError: the directory cannot be written.
        """
        for name in (task, run or "_"):
            if not _TASK.fullmatch(name):
                raise ConfigError(f"archive {directory}: {name!r} cannot be part of a file name")
        self._directory = location("the archive", directory)
        self._files = files_of(self._directory)
        self._task = task
        self._batch_length_ms = batch_length_ms
        self._dead_letter = dead_letter
        self._pickles = codec == "pickle"
        self._batches: dict[int, _Rows] = {}
        self.waiting = 0
        """How many elements wait for `commit`."""
        try:
            if isinstance(self._directory, Path):
                self._directory.mkdir(parents=True, exist_ok=True)
            self._schema = agree(self._directory, codec, batch_length_ms)
            if isinstance(self._directory, Path):
                remove_stale(self._directory)
            else:
                self._files.remove_torn(self._directory, (_BATCH, f"{TMP}/"))
        except OSError as error:
            raise HeronError(f"cannot write archive {directory}: {error.strerror or error}") from error
        self._progress = Progress(self._directory, task, run, tasks)
        self._first = True
        self._taken = self._refused = 0
        """Elements that were committed, and those of them that had no place."""

    def add(self, id: str, time_ms: int, value: Any) -> None:
        """Take an element; it is in memory until `commit`. A dict may be changed afterwards, what is in it may not.

        Args:
            id: its name among all elements of the archive; an element that comes twice has one id.
            time_ms: its time in ms since the epoch.
            value: the element.

        Raises:
            TupleError: the codec cannot hold such elements, and none has been archived yet.
        """
        if self._first:
            self._check_first(value)
        if self._pickles:
            try:
                value = pickle.dumps(value, protocol=5)
            except Exception as error:  # user's __reduce__ and __getstate__ may raise anything
                if is_shortage(error):
                    raise
                self._dead_letter(f"archive {self._directory}, id {id}", value, f"cannot be pickled: {message(error)}")
                return
        elif type(value) is dict:
            value = value.copy()  # a later stage of the same task may well add a field to it
        if type(time_ms) is not int or not -_TIME_LIMIT_MS <= time_ms < _TIME_LIMIT_MS:
            self._dead_letter(f"archive {self._directory}, id {id}", value, f"its time is {time_ms!r:.100}: no ms")
            return
        batch = time_ms // self._batch_length_ms
        rows = self._batches.get(batch)
        if rows is None:
            rows = self._batches[batch] = _Rows([], [], [])
        rows.ids.append(id)
        rows.times_ms.append(time_ms)
        rows.values.append(value)
        self.waiting += 1

    def commit(self) -> int:
        """Write everything that waits; on return it is on disk and visible. How many files that makes.

        Raises:
            HeronError: it cannot be written. What waits still waits: call it again.
            TupleError: most elements are not like the first ones, by which the archive knows its type.
        """
        written = []
        try:
            for batch, rows in list(self._batches.items()):
                path = self._write(batch, rows)
                if path is not None:
                    written.append((path, batch))
                if not isinstance(self._directory, Path):
                    self._archived(batch)  # visible already: if the next fails, it is not to be written again
            if isinstance(self._directory, Path):
                self._rename(self._directory, written)
        except OSError as error:
            # Files that are renamed already stay: their rows will be there twice, under one id, as after a kill.
            raise HeronError(f"cannot write archive {self._directory}: {error.strerror or error}") from error
        for batch in list(self._batches):
            self._archived(batch)
        return len(written)

    def _archived(self, batch: int) -> None:
        count = len(self._batches.pop(batch).ids)
        self._taken += count
        self.waiting -= count

    def _rename(self, directory: Path, written: Sequence[tuple[Location, int]]) -> None:
        named = [(tmp, batch, self._name()) for tmp, batch in written]
        announce(directory, [(batch, name) for _, batch, name in named])
        folders = []
        for tmp, batch, name in named:
            assert isinstance(tmp, Path)
            folders.append(directory / f"{_BATCH}{batch}")
            folders[-1].mkdir(exist_ok=True)
            os.rename(tmp, folders[-1] / name)
        for folder in folders + ([directory] if written else []):
            sync(folder)

    def progress(self, watermark_ms: int | None) -> None:
        """Record that every element before `watermark_ms` of this task is committed; None: every one there will be.

        Args:
            watermark_ms: what `Archive.complete_before_ms` takes the least of, over the tasks of a run.

        Raises:
            HeronError: it cannot be written, or elements wait for `commit`.
        """
        if self.waiting:
            raise HeronError(f"archive {self._directory}: {self.waiting} elements wait for commit: no progress yet")
        self._progress.record(watermark_ms)

    def close(self) -> None:
        """Let go of what waits: call `commit` before."""
        self._batches = {}
        self.waiting = 0

    def _check_first(self, value: Any) -> None:
        """Refuse a program whose elements the codec cannot hold, before it has lost any of them."""
        self._first = False
        if self._schema.element != "null":
            return
        try:
            if self._pickles:
                pickle.dumps(value, protocol=5)
            else:
                widen("null", value)
        except SchemaMismatch as mismatch:
            raise TupleError(f"archive {self._directory}: {mismatch}: map it first, or use codec='pickle'") from None
        except Exception as error:
            if is_shortage(error):
                raise
            raise TupleError(f"archive {self._directory}: the element cannot be pickled: {said(error)}") from error

    def _name(self) -> str:
        return f"{time.time_ns() // 1_000_000}-{self._task}-{secrets.token_hex(6)}.parquet"

    def _write(self, batch: int, rows: _Rows) -> Location | None:
        """Write rows to a temporary file, or to their place in a store; None if none of them can be archived."""
        if self._pickles:
            element: Type = "null"
            columns = {"pickled": pa.array(rows.values, pa.binary())}
        else:
            fit = self._fitting(rows)
            if fit is None:
                return None
            element, columns = fit
        ids = _id_array(rows.ids)
        hashes = id_hashes(ids)
        times = pa.array(rows.times_ms, pa.int64())
        codec = "pickle" if self._pickles else "columns"
        footer = Footer(codec, element, len(rows.ids), hash_sum(hashes), mixed=OTHER in columns)
        table = pa.table({"id": ids, "id_hash": pa.array(hashes), "time_ms": times} | columns)
        table = table.replace_schema_metadata(footer.metadata())
        path: Location
        if isinstance(self._directory, Path):
            path = tmp_path(self._directory)
        else:
            path = self._directory / f"{_BATCH}{batch}" / self._name()
            announce(self._directory, [(batch, path.name)])
        with self._files.writing(path) as to:
            pq.write_table(table, to, row_group_size=rows_per_group(table), **write_options())
        return path

    def _encoded(self, values: Sequence[Any]) -> tuple[Type, dict[str, Any]]:
        """The type of the columns of values, and the columns.

        Raises:
            SchemaMismatch: they contradict each other or the schema.
        """
        element = _as_the_first(values[0], self._schema.element)
        if element is not None:
            try:
                return element, encode(values, element)
            except SchemaMismatch:
                pass  # it is not that simple
        seen = infer(values)
        if merge(self._schema.element, seen) != self._schema.element:
            self._schema = evolve(self._directory, seen)
        element = narrow(self._schema.element, seen)
        return element, encode(values, element)

    def _encoded_mixed(self, values: Sequence[Any]) -> tuple[Type, dict[str, Any]]:
        """The same where values contradict each other or the schema: a field keeps the type that it had first.

        Raises:
            SchemaMismatch: a value is none that the codec can hold at all, or the archive would have too many fields.
        """
        while True:
            element, seen = self._schema.element, "null"
            for value in values:
                element, seen = widen(element, value), widen(seen, value)
            try:
                if element != self._schema.element:
                    self._schema = evolve(self._directory, element)
            except SchemaMismatch:  # another task was first with a field, or there are too many
                schema = read_schema(self._directory)
                if schema is None or schema == self._schema:
                    raise
                self._schema = schema
                continue
            element = narrow(self._schema.element, seen)
            return element, encode_mixed(values, element)

    def _fitting(self, rows: _Rows) -> tuple[Type, dict[str, Any]] | None:
        """Type and columns of the rows that can be archived, if any. The others go to the dead letters."""
        while rows.values:
            try:
                return self._encoded(rows.values)
            except SchemaMismatch:
                pass  # rare, and slow from here on
            try:
                return self._encoded_mixed(rows.values)
            except SchemaMismatch:
                # Every pass refuses rows or learns of the schema, and what is known of that is never forgotten.
                refused: dict[int, str] = {}
                self._find_mismatches(rows.values, 0, len(rows.values), refused)
                self._refuse(rows, refused)
        return None

    def _refuse(self, rows: _Rows, refused: dict[int, str]) -> None:
        total = self._refused + len(refused)
        if total > REFUSED_MAX and total > REFUSED_SHARE_MAX * (self._taken + len(rows.ids)):
            raise TupleError(
                f"archive {self._directory}: {total} of {self._taken + len(rows.ids)} elements do not fit the first "
                f"ones: {next(iter(refused.values()))}; map them first, or use codec='pickle'"
            )
        self._refused = total
        self._taken += len(refused)
        for index, reason in refused.items():
            where = f"archive {self._directory}, id {rows.ids[index]}, time {rows.times_ms[index]}"
            self._dead_letter(where, rows.values[index], reason)
        # They are in memory no more: if `commit` fails and is called again, they are not set aside twice.
        for column in rows:
            column[:] = [item for index, item in enumerate(column) if index not in refused]
        self.waiting -= len(refused)

    def _find_mismatches(self, values: Sequence[Any], begin: int, end: int, refused: dict[int, str]) -> None:
        """Halve until each mismatch is alone: some bad rows in thousands cost little more than none."""
        try:
            self._encoded_mixed(values[begin:end])
        except SchemaMismatch as mismatch:
            if end - begin == 1:
                refused[begin] = str(mismatch)
                return
            middle = (begin + end) // 2
            self._find_mismatches(values, begin, middle, refused)
            self._find_mismatches(values, middle, end, refused)


def _as_the_first(value: Any, known: Type) -> Type | None:
    """The type of rows that all have the fields of the first one, if the schema knows these."""
    if isinstance(known, str):
        return None if known == "null" else known
    if "dict" not in known or type(value) is not dict:
        return known
    fields = known["dict"]
    try:
        return {"dict": {field: fields[field] for field in sorted(value)}}
    except (KeyError, TypeError):
        return None


def _id_array(ids: list[str]) -> Any:
    try:
        return pa.array(ids, pa.string())
    except UnicodeError:  # such as a file's name that is not UTF-8
        return pa.array([id_.encode("utf-8", "backslashreplace").decode() for id_ in ids], pa.string())
