"""Reading batch views: one key in about a millisecond, or all of a batch."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from heronpy.errors import NotFoundError, StateError
from heronpy.filesystem import Location
from heronpy.hashing import stable_hash
from heronpy.pipeline.batch_times import batch_name
from heronpy.pipeline.manifest import Batch, Manifest, Parts, Tier
from heronpy.pipeline.parts import groups_together, opened_part, read_groups
from heronpy.stores import decode_key, encode_key
from heronpy.streamlet.monoid import Monoid

_OPEN_FILES_MAX = 64
_KEPT_BYTES = 64 << 20
"""Of row groups that were read lately, at most so much is kept."""


class ViewReader:
    """A view as batch runs left it. Not for several threads at once."""

    def __init__(self, directory: Location, view: str, monoid: Monoid, manifest: Manifest | None = None) -> None:
        """Open a view.

        Args:
            directory: the job's.
            view: its name.
            monoid: how its values are merged.
            manifest: which versions to read; without it the newest. When a run has replaced them, reads go on with
                the newest.

        Raises:
            StateError: batches that are done do not have it, or have it with another monoid.
        """
        self._directory = directory
        self._view = view
        self._monoid = monoid
        self.manifest = manifest or Manifest.load(directory)
        """Which versions are read."""
        self._files: OrderedDict[Location, _PartFile] = OrderedDict()
        self._groups = _Groups()
        self._lookup: tuple[Manifest, int | None, list[_Source]] | None = None
        """Where `get` has looked last: to find that in the manifest costs in proportion to the history."""
        if lacking := self.manifest.lacking(view, self.manifest.committed_watermark):
            last = self._name(lacking[-1])
            raise StateError(
                f"view {view} is not computed for {len(lacking)} batches that are done (the last: {last}): "
                "`heron pipeline run` computes it"
            )
        if others := self.manifest.others(view, monoid.signature):
            made = self.manifest.batches[others[-1]].monoids[view]
            raise StateError(
                f"batch view {view} is made with {made} up to batch {self._name(others[-1])}, the program has "
                f"{monoid.signature}: `heron pipeline run` computes it anew, or give the view another name"
            )

    def batches(self) -> list[int]:
        """Batch ids that have the view, ascending; also those in which it has no rows."""
        return [n for n, batch in self.manifest.batches.items() if self._view in batch.views]

    def get(self, key: Any, upto: int | None = None, batch: int | None = None) -> Any:
        """The accumulator of a key over all batches up to `upto` (all without it); None if it has none.

        Args:
            key: as the program made it.
            upto: the last batch that counts.
            batch: the only one that can have the key; None: any can.

        Raises:
            StateError: a file is damaged or missing.
        """
        try:
            return self._get(key, upto, batch)
        except (FileNotFoundError, NotFoundError):  # of a part, of what the manifest names
            self._reload()
        try:
            return self._get(key, upto, batch)
        except FileNotFoundError as e:
            raise StateError(f"view {self._view} misses {e.filename}: compute that batch again") from e

    def items(self, batch: int) -> Iterator[tuple[Any, Any]]:
        """Every key of a batch with its accumulator, by encoded key within each file.

        Raises:
            StateError: a file is damaged or missing.
        """
        done = self.manifest.batches.get(batch)
        if done is None or self._view not in done.views:
            return
        parts = done.views[self._view]
        folder = self._batch_folder(batch, done.version_of(parts))
        for index, rows in enumerate(parts.part_rows):
            if rows:
                yield from self._rows(folder / parts.file_of(index))

    def totals(self, upto: int | None = None) -> Iterator[tuple[Any, Any]]:
        """Every key with its accumulator over all batches up to `upto`. Holds all keys of the view in memory."""
        table: dict[bytes, Any] = {}  # by what is one key here: a nan is none in a dict
        for path in view_files(self._directory, self._view, self.manifest, upto):
            for key, value in read_rows(path):
                acc = self._monoid.decode(value)
                table[key] = self._monoid.merge(table[key], acc) if key in table else acc
        yield from ((decode_key(key), acc) for key, acc in table.items())

    def pieces(self, upto: int | None = None) -> Iterator[tuple[Any, Any]]:
        """The same, with each key as often as it is somewhere: what is there of a key is to be merged.

        Raises:
            StateError: a file is damaged or missing.
        """
        for path in view_files(self._directory, self._view, self.manifest, upto):
            yield from self._rows(path)

    def close(self) -> None:
        """Let go of files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._groups.clear()

    def _name(self, batch: int) -> str:
        return batch_name(batch, self.manifest.batch_length_ms)

    def _get(self, key: Any, upto: int | None, batch: int | None) -> Any:
        encoded, hashed = encode_key(key), stable_hash(key)
        total: Any = None
        for source in self._looked_up(upto):
            if batch is not None and not source.has(batch):
                continue
            for index in source.parts.holding(hashed):
                value = self._open(source.folder / source.parts.file_of(index)).get(encoded)
                if value is not None:
                    acc = self._monoid.decode(value)
                    total = acc if total is None else self._monoid.merge(total, acc)
        return total

    def _looked_up(self, upto: int | None) -> list[_Source]:
        if self._lookup is None or self._lookup[0] is not self.manifest or self._lookup[1] != upto:
            found = _sources(self._directory, self._view, self.manifest, upto)
            self._lookup = self.manifest, upto, [source for source in found if source.parts.rows]
        return self._lookup[2]

    def _batch_folder(self, batch: int, version: str) -> Location:
        return self._directory / "views" / self._view / f"batch={batch}" / version

    def _rows(self, path: Location) -> Iterator[tuple[Any, Any]]:
        for key, value in read_rows(path):
            yield decode_key(key), self._monoid.decode(value)

    def _open(self, path: Location) -> _PartFile:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _PartFile(path, self._groups)
            if len(self._files) > _OPEN_FILES_MAX:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(path)
        return file

    def _reload(self) -> None:
        self.close()
        self.manifest = Manifest.load(self._directory)


def view_files(
    directory: Location, view: str, manifest: Manifest, upto: int | None, *, first: int | None = None
) -> list[Location]:
    """The files that have everything up to a batch, or from one to another: of tiers, and of batches in none."""
    return [
        source.folder / source.parts.file_of(index)
        for source in _sources(directory, view, manifest, upto, first)
        for index, rows in enumerate(source.parts.part_rows)
        if rows
    ]


def batch_files(directory: Location, view: str, n: int, batch: Batch) -> list[Location]:
    """The files of one batch of a view."""
    parts = batch.views[view]
    folder = directory / "views" / view / f"batch={n}" / batch.version_of(parts)
    return [folder / parts.file_of(index) for index, rows in enumerate(parts.part_rows) if rows]


def tier_files(directory: Location, view: str, tier: Tier) -> list[Location]:
    """The files of a tier of a view."""
    folder = directory / "views" / view / "base" / tier.version
    return [folder / tier.parts.file_of(index) for index, rows in enumerate(tier.parts.part_rows) if rows]


class _Source(NamedTuple):
    """What is read of a view: a tier, or a batch that is in none."""

    after: int | None
    """The last batch before it."""
    upto: int
    folder: Location
    parts: Parts

    def has(self, batch: int) -> bool:
        return (self.after is None or batch > self.after) and batch <= self.upto


def _sources(
    directory: Location, view: str, manifest: Manifest, upto: int | None, first: int | None = None
) -> list[_Source]:
    tiers, batches = manifest.read_plan(view, upto, directory, first=first)
    folder = directory / "views" / view
    found = [_Source(tier.after, tier.upto, folder / "base" / tier.version, tier.parts) for tier in tiers]
    for n, batch in batches:
        parts = batch.views[view]
        found.append(_Source(n - 1, n, folder / f"batch={n}" / batch.version_of(parts), parts))
    return found


def read_rows(path: Location) -> Iterator[tuple[bytes, bytes]]:
    """The encoded keys and values of a part, by key.

    Raises:
        StateError: it is damaged or missing.
    """
    import pyarrow as pa

    try:
        with opened_part(path) as file:
            for groups in groups_together(file):
                table = read_groups(file, groups)
                yield from zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True)
    except (pa.ArrowException, OSError) as e:
        raise StateError(f"{path} cannot be read: {e}; compute that batch again") from e


class _Groups:
    """Row groups that were read lately, keys and values as Arrow arrays, by file and number."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[Location, int], tuple[Any, Any]] = OrderedDict()
        self._bytes = 0

    def get(self, path: Location, group: int, read: Callable[[], Any]) -> tuple[Any, Any]:
        """Keys and values of one; `read` gives them as a table."""
        place = path, group
        found = self._found.get(place)
        if found is None:
            table = read()
            found = self._found[place] = table.column(0).combine_chunks(), table.column(1).combine_chunks()
            self._bytes += _size(found)
            while self._bytes > _KEPT_BYTES and len(self._found) > 1:
                self._bytes -= _size(self._found.popitem(last=False)[1])
        else:
            self._found.move_to_end(place)
        return found

    def clear(self) -> None:
        self._found.clear()
        self._bytes = 0


def _size(columns: tuple[Any, Any]) -> int:
    return sum(column.get_total_buffer_size() for column in columns)


class _PartFile:
    """A part that stays open for lookups."""

    def __init__(self, path: Location, groups: _Groups) -> None:
        import pyarrow as pa

        self._path, self._groups = path, groups
        try:
            self._file = opened_part(path)
        except FileNotFoundError as e:
            raise FileNotFoundError(2, "no such file", str(path)) from e
        except (pa.ArrowException, OSError) as e:
            raise StateError(f"{path} cannot be read: {e}; compute that batch again") from e
        self._row_groups = range(self._file.metadata.num_row_groups)
        self._firsts: dict[int, bytes] = {}
        """First keys of row groups that were asked for: to take all out of the footer is half of opening a tier."""

    def get(self, key: bytes) -> bytes | None:
        """The value of an encoded key."""
        group = bisect.bisect_right(self._row_groups, key, key=self._first) - 1
        if group < 0:
            return None
        keys, values = self._columns(group)
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if keys[middle].as_py() < key:
                low = middle + 1
            else:
                high = middle
        if low < len(keys) and keys[low].as_py() == key:
            value: bytes = values[low].as_py()
            return value
        return None

    def _first(self, group: int) -> bytes:
        found = self._firsts.get(group)
        if found is None:
            known = self._file.metadata.row_group(group).column(0).statistics
            found = known.min if known is not None else None
            if found is None:  # it has none of a long key
                found = self._columns(group)[0][0].as_py()
            self._firsts[group] = found
        return found

    def _columns(self, group: int) -> tuple[Any, Any]:
        return self._groups.get(self._path, group, lambda: self._read(group))

    def _read(self, group: int) -> Any:
        import pyarrow as pa

        try:
            return read_groups(self._file, [group])
        except FileNotFoundError:
            raise  # in a store nothing is kept for who has it open: a run has replaced it
        except (pa.ArrowException, OSError) as e:
            raise StateError(f"{self._path} cannot be read: {e}; compute that batch again") from e

    def close(self) -> None:
        self._file.close()
