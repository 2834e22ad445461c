"""Merges files of one batch into one. Nothing is visible until `publish`; the files it replaces are removed later.

The new file names in its footer what it replaces, and appears by one rename: a reader that lists the directory sees
either the old files or the new one, whatever is killed and whenever. Duplicates stay: two rows with one id are the
same event only to a run.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heronpy.archive._archive import MERGED, Archive, ArchiveFile
from heronpy.archive._arrow import pa, pq
from heronpy.archive._split import DAMAGED, read_row_group
from heronpy.archive.decode import decode, one_array
from heronpy.archive.element_types import SchemaMismatch, Type, merge
from heronpy.archive.encode import arrow_type, encode_mixed
from heronpy.archive.files import this_process, tmp_path
from heronpy.archive.footer import (
    NOTES,
    ROW_GROUP_BYTES,
    Footer,
    UnreadableError,
    check_codec,
    opened,
    read_footer,
    write_options,
)
from heronpy.archive.id_hash import hash_sum
from heronpy.errors import is_shortage
from heronpy.filesystem import Location, files_of

_REENCODED_ROWS = 50_000


class _DamagedError(Exception):
    """A file that cannot be merged: (path, reason)."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Files that become one. Picklable."""

    directory: Location
    """The archive's."""
    batch: int
    files: tuple[Location, ...]
    owner: str
    """Process that publishes: with it the temporary file becomes stale."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of a plan."""

    plan: MergePlan
    tmp: Location | None = None
    """The new file, not published yet; None: all files stay as they are."""
    files: tuple[Location, ...] = ()
    """Those that are in it."""
    rows: int = 0
    skipped: tuple[str, ...] = ()
    """Files that stay as they are, each with the reason."""


def plan_merges(
    directory: Location, batch: int, files: Sequence[ArchiveFile], *, min_files: int, target_bytes: int
) -> list[MergePlan]:
    """Which of a batch's files to merge: those below half the target, if there are at least `min_files`."""
    small = [file for file in files if file.size_bytes < target_bytes // 2]
    if len(small) < max(2, min_files):
        return []
    bins: list[list[ArchiveFile]] = [[]]
    size_bytes = 0
    for file in small:
        if bins[-1] and size_bytes + file.size_bytes > target_bytes:
            bins.append([])
            size_bytes = 0
        bins[-1].append(file)
        size_bytes += file.size_bytes
    return [
        MergePlan(directory, batch, tuple(file.path for file in group), this_process())
        for group in bins
        if len(group) > 1
    ]


def merge_files(plan: MergePlan) -> Merged:
    """Write the merged file under a temporary name. About two row groups are in memory.

    Files that cannot be read stay as they are, and the others are merged.

    Raises:
        OSError, HeronError: the disk is full or fails, or the store does not answer.
    """
    files = list(plan.files)
    skipped: list[str] = []
    while len(files) > 1:
        tmp = tmp_path(plan.directory, plan.owner)
        try:
            return Merged(plan, tmp, tuple(files), _write(plan, files, tmp), tuple(skipped))
        except _DamagedError as error:
            path, reason = error.args
            files.remove(path)
            skipped.append(f"{path}: {reason}")
            files_of(tmp).delete([tmp])
        except BaseException:
            files_of(tmp).delete([tmp])
            raise
    return Merged(plan, skipped=tuple(skipped))


def publish(merged: Merged) -> Location | None:
    """Make a merged file count, and the files that it replaces not, at once.

    None: another compaction, which has taken this one for dead, was faster. Its rows would be there twice.
    """
    assert merged.tmp is not None
    there = {file.path for file in Archive(merged.plan.directory).files_of_batch(merged.plan.batch)}
    if not there.issuperset(merged.files):
        files_of(merged.tmp).delete([merged.tmp])
        return None
    folder = merged.plan.directory / f"batch={merged.plan.batch}"
    path = folder / f"{time.time_ns() // 1_000_000}{MERGED}{secrets.token_hex(6)}.parquet"
    files_of(path).move(merged.tmp, path)
    return path


def _write(plan: MergePlan, files: Sequence[Location], tmp: Location) -> int:
    codec = Archive(plan.directory).codec
    footers = [_footer(path, codec) for path in files]
    footer = _merged_footer(files, footers)
    alike = len({json.dumps(each.element) for each in (footer, *footers)}) == 1  # in the order of fields too
    footer = replace(footer, mixed=not alike or any(each.mixed for each in footers))
    tables = _tables(files, footers, None if alike else footer.element)
    schema = _schema(footer, notes=_notes_of(files) if alike else NOTES)
    named = schema.with_metadata(footer.metadata())
    with files_of(tmp).writing(tmp) as to, pq.ParquetWriter(to, named, **write_options()) as writer:
        for table in _grouped(_conform(table, schema) for table in tables):
            writer.write_table(table, row_group_size=table.num_rows)
    return footer.rows


def _footer(path: Location, codec: str) -> Footer:
    try:
        footer = read_footer(path)
        check_codec(footer, codec)
        return footer
    except (UnreadableError, FileNotFoundError) as error:
        raise _DamagedError(path, str(error)) from error


def _merged_footer(files: Sequence[Location], footers: Sequence[Footer]) -> Footer:
    element: Type = "null"
    for path, footer in zip(files, footers, strict=True):
        try:
            element = merge(element, footer.element)
        except SchemaMismatch as mismatch:
            raise _DamagedError(path, str(mismatch)) from mismatch
    # What these files have replaced may still be there: it must not count again when they are gone. And a run that was
    # computed from it must find that it is not lost, however often it has been merged since.
    replaces = {path.name for path in files}.union(*(footer.replaces for footer in footers))
    return Footer(
        footers[0].codec,
        element,
        sum(footer.rows for footer in footers),
        sum(footer.hash_sum for footer in footers) % 2**64,
        tuple(sorted(replaces)),
    )


def _schema(footer: Footer, notes: Sequence[str]) -> Any:
    data = ("pickled", pa.binary()) if footer.codec == "pickle" else ("value", arrow_type(footer.element))
    columns = [("id", pa.string()), ("id_hash", pa.int64()), ("time_ms", pa.int64()), data]
    return pa.schema(columns + ([] if footer.codec == "pickle" else [(name, pa.string()) for name in notes]))


def _notes_of(paths: Sequence[Location]) -> list[str]:
    found: set[str] = set()
    for path in paths:
        with opened(path) as file:
            found |= set(file.schema_arrow.names)
    return [name for name in NOTES if name in found]


def _tables(paths: Sequence[Location], footers: Sequence[Footer], element: Type | None) -> Iterator[Any]:
    """The row groups of files; in columns of type `element`, if that is given."""
    for path, footer in zip(paths, footers, strict=True):
        hashes = 0
        try:
            with opened(path) as file:
                for group in range(file.num_row_groups):
                    table = read_row_group(file, group)
                    hashes += hash_sum(one_array(table.column("id_hash")).to_numpy())
                    yield from [table] if element is None else _reencoded(table, footer, element)
        except (UnreadableError, FileNotFoundError, SchemaMismatch, *DAMAGED) as error:
            if is_shortage(error):
                raise
            raise _DamagedError(path, f"{type(error).__name__}: {error}") from error
        if hashes % 2**64 != footer.hash_sum:
            raise _DamagedError(path, "its rows are not those that its footer counts")


def _reencoded(table: Any, footer: Footer, element: Type) -> Iterator[Any]:
    for begin in range(0, table.num_rows, _REENCODED_ROWS):
        part = table.slice(begin, _REENCODED_ROWS)
        columns = {name: one_array(part.column(name)) for name in part.column_names}
        kept = {name: columns[name] for name in ("id", "id_hash", "time_ms")}
        yield pa.table(kept | encode_mixed(decode(columns, footer.element), element))


def _conform(table: Any, schema: Any) -> Any:
    """A table with exactly the columns of a schema; notes that it has not are null."""
    columns = [
        table.column(name) if name in table.column_names else pa.nulls(table.num_rows, schema.field(name).type)
        for name in schema.names
    ]
    return pa.table(columns, schema=schema)


def _grouped(tables: Iterator[Any]) -> Iterator[Any]:
    """Tables put together until they make a row group."""
    waiting: list[Any] = []
    waiting_bytes = 0
    for table in tables:
        waiting.append(table)
        waiting_bytes += table.nbytes
        if waiting_bytes >= ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()
