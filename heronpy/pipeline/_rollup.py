"""Roll-ups: a view's batches up to one, merged, so that a read over years opens a few files and not thousands."""

from __future__ import annotations

import pickle
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.files import sync
from heronpy.filesystem import Location, files_of
from heronpy.hashing import stable_hash
from heronpy.pipeline.execute import collected, pack, unpack
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Base, Manifest, Parts
from heronpy.pipeline.outputs import merge_rows
from heronpy.pipeline.parts import part_name, unused, write_part
from heronpy.pipeline.progress import Progress, watched
from heronpy.pipeline.views import read_rows
from heronpy.stores import decode_key
from heronpy.streamlet.monoid import Monoid

if TYPE_CHECKING:
    from pyspark import SparkContext

BATCHES_MAX = 16
"""So many batches that are in no roll-up make a new one."""
ROWS_PER_PART = 1_000_000
_TABLE_MAX = 100_000


def views_to_roll_up(manifest: Manifest) -> list[str]:
    """Views whose reads would open too many batches."""
    views = sorted({view for batch in manifest.batches.values() for view in batch.views})
    return [view for view in views if len(_outside(manifest, view)) > BATCHES_MAX]


def _outside(manifest: Manifest, view: str) -> list[int]:
    """Batches that a read of everything closed opens one by one."""
    base = manifest.base_of(view)
    return sorted(
        n
        for n, batch in manifest.batches.items()
        if view in batch.views
        and batch.views[view].rows
        and (base is None or n > base.upto)
        and manifest.committed_watermark is not None
        and n <= manifest.committed_watermark
    )


def roll_up(sc: SparkContext, job: Job, manifest: Manifest, progress: Callable[[Progress], None] | None = None) -> None:
    """Make the roll-ups that are worth it, each visible at once."""
    stores = job.stores()
    for view in views_to_roll_up(manifest):
        if view in stores and not manifest.others(view, stores[view].monoid.signature):
            with watched(sc, "roll up", (), progress):
                _roll_up(sc, job, manifest, view, stores[view].monoid)


def _roll_up(sc: SparkContext, job: Job, manifest: Manifest, view: str, monoid: Monoid) -> None:
    old = manifest.bases.get(view)
    valid = manifest.base_of(view)
    batches = _outside(manifest, view)
    upto = batches[-1]
    folder = job.directory / "views" / view
    sources = [(folder / "base" / valid.version, valid.parts)] if valid else []
    sources += [(folder / f"batch={n}" / manifest.batches[n].version, manifest.batches[n].views[view]) for n in batches]
    files = [folder / parts.file_of(i) for folder, parts in sources for i, n in enumerate(parts.part_rows) if n]
    rows = sum(parts.rows for _, parts in sources)
    count = max(1, -(-rows // ROWS_PER_PART))
    version = f"{time.time_ns() // 1_000_000:x}-{secrets.token_hex(4)}"
    parts = _merged(sc, files, monoid, count, folder / "base" / version)
    current = {n: b.version for n, b in manifest.batches.items() if n <= upto and view in b.views}
    manifest.bases[view] = Base(version, upto, current, parts)
    manifest.save(job.directory)
    if old is not None:
        files_of(folder).delete_folder(folder / "base" / old.version)


def _merged(sc: SparkContext, files: Sequence[Location], monoid: Monoid, count: int, folder: Location) -> Parts:
    shared = sc.broadcast(pack(monoid))
    try:
        tasks = [list(files[i::16]) for i in range(min(16, len(files)))]
        rdd = sc.parallelize(tasks, max(1, len(tasks))).mapPartitions(_Read(shared, count)).partitionBy(count, int)
        written = collected(rdd.mapPartitionsWithIndex(_Write(shared, folder)))
    finally:
        shared.destroy()
    rows, names = [0] * count, [""] * count
    for index, number, path in written:
        if isinstance(path, Path):
            path.replace(path.with_name(part_name(index)))
        names[index] = path.name
        rows[index] = number
    if not isinstance(folder, Path):
        return Parts(sum(rows), rows, names)
    if written:
        for path in (folder, folder.parent):
            sync(path)
    return Parts(sum(rows), rows)


class _Read:
    """Merges what one task reads: (partition, rows (encoded key, encoded accumulator))."""

    def __init__(self, shared: Any, count: int) -> None:
        self._shared, self._count = shared, count

    def __call__(self, tasks: Iterable[list[Location]]) -> Iterator[tuple[int, bytes]]:
        monoid: Monoid = unpack(self._shared.value)
        table: dict[bytes, Any] = {}
        for files in tasks:
            for path in files:
                merge_rows(table, [(key, monoid.decode(value)) for key, value in read_rows(path)], monoid)
                if len(table) > _TABLE_MAX:
                    yield from self._blocks(table, monoid)
                    table = {}
        yield from self._blocks(table, monoid)

    def _blocks(self, table: dict[bytes, Any], monoid: Monoid) -> Iterator[tuple[int, bytes]]:
        buckets: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, acc in table.items():
            p = stable_hash(decode_key(key)) % self._count if self._count > 1 else 0
            buckets.setdefault(p, []).append((key, monoid.encode(acc)))
        yield from ((p, pickle.dumps(rows)) for p, rows in buckets.items())


class _Write:
    """Writes a part: (index, rows, path)."""

    def __init__(self, shared: Any, folder: Location) -> None:
        self._shared, self._folder = shared, folder

    def __call__(self, index: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int, Location]]:
        monoid: Monoid = unpack(self._shared.value)
        table: dict[bytes, Any] = {}
        for _, data in blocks:
            merge_rows(table, [(key, monoid.decode(value)) for key, value in pickle.loads(data)], monoid)
        if table:
            path = unused(self._folder, index)
            rows = [(key, decode_key(key), acc) for key, acc in sorted(table.items())]
            yield index, write_part(path, rows, monoid, _raise), path


def _raise(key: Any, acc: Any, error: Exception) -> None:
    raise error
