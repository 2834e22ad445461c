"""Roll-ups: a view's batches, merged into tiers, so that a read over years opens a few files and not thousands.

Sixteen neighbouring batches make a tier of level 1, four neighbouring tiers of a level one of the next. Only the
topmost are read: some for each level. Those that they were made of stay: when late data replace a batch, each tier that
it is in is given up for its parts (by `Manifest.save`), and made again of them, which is one tier for each level. A row
is written once for each level, however long the history is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from heronpy.files import sync
from heronpy.filesystem import Location, files_of
from heronpy.hashing import stable_hash
from heronpy.pipeline.batch import TIER_BATCHES, TIER_TIERS, Batch, Parts, Tier, level_of
from heronpy.pipeline.blocks import Packer, sliced, unpacked
from heronpy.pipeline.computing import cores, new_version, worker_memory
from heronpy.pipeline.execute import collected, pack, unpack
from heronpy.pipeline.intents import intend, settle
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import CHILDREN, Manifest
from heronpy.pipeline.memory import Memory
from heronpy.pipeline.outputs import PartTables, merge_rows
from heronpy.pipeline.parts import ROW_GROUP_ROWS, SMALL_GROUP_ROWS, part_name, unused, write_part
from heronpy.pipeline.progress import Progress, watched
from heronpy.pipeline.spill import local_directory
from heronpy.pipeline.views import read_rows
from heronpy.pipeline.window_keys import batch_of
from heronpy.stores import decode_key
from heronpy.streamlet.graph import StoreNode
from heronpy.streamlet.monoid import Monoid

if TYPE_CHECKING:
    from pyspark import SparkContext

ROWS_PER_PART = 1_000_000
_TABLE_MAX = 100_000
_ROWS = 8192
"""Rows of a file, or of a table, that are taken together."""
_EMPTY = 16
"""So many batches without rows count as one with: they cost a read no file, but are looked for in the history."""
_TIERS_MAX = 64
WINDOW_LEVEL = 3
WINDOW_ROWS = 65_536
"""Tiers of views by window grow up to this level, and on up to so many rows: who asks for a key opens one of them, so
larger ones would only be more to write again, with each late file and with each level."""
_TOGETHER_MAX = 1024
"""So many batches that are in no tier become one at once, where there are many: the tiers in it are left out."""


@dataclass
class Merge:
    """What becomes a tier."""

    after: int | None
    upto: int
    level: int
    tiers: list[Tier] = field(default_factory=list)
    batches: list[tuple[int, Batch]] = field(default_factory=list)
    """If it is made of no tiers."""


def plan_merges(manifest: Manifest, view: str, *, by_window: bool = False) -> list[Merge]:
    """The tiers that can be made now; afterwards there may be more. Pure, but for what it reads of the history.

    Args:
        manifest: what is done.
        view: its name.
        by_window: whether all of a key is in one batch, see `window_keys`.
    """
    upto = manifest.committed_watermark
    if upto is None:
        return []
    tiers, batches = manifest.read_plan(view, upto)
    runs: list[tuple[int | None, int | None, list[tuple[int, Batch]]]] = []
    at = None
    for tier in tiers:
        if tier.after is not None and tier.after != at:
            end = tier.after
            runs.append((at, end, [(n, b) for n, b in batches if (at is None or n > at) and n <= end]))
        at = tier.upto
    runs.append((at, None, [(n, b) for n, b in batches if at is None or n > at]))
    merges = [merge for run in runs for merge in _of_batches(view, *run)]
    merges += [merge for merge in _of_tiers(tiers) if not by_window or _is_small(merge)]
    return merges or _of_many(tiers, by_window=by_window)


def _of_batches(view: str, after: int | None, end: int | None, run: list[tuple[int, Batch]]) -> Iterator[Merge]:
    """Tiers of neighbouring batches: of all of them before another tier (`end`), else of as many as make whole ones."""
    weights = [_EMPTY if batch.views[view].rows else 1 for _, batch in run]
    size = TIER_BATCHES if sum(weights) < 2 * _TOGETHER_MAX * _EMPTY else _TOGETHER_MAX
    full = size * _EMPTY
    if end is None and sum(weights) <= full:
        return
    left = max(1, sum(weights) // full)
    some: list[tuple[int, Batch]] = []
    weight = 0
    for number, ((n, batch), one) in enumerate(zip(run, weights, strict=True), start=1):
        some.append((n, batch))
        weight += one
        # Some are of more than that: before another tier, the last batch is left for the last one.
        if weight >= full and (end is None or (left > 1 and number < len(run))):
            yield Merge(after, n, level_of(size), batches=some)
            after, some, weight, left = n, [], 0, left - 1
            if not left:
                return
    if end is not None:
        yield Merge(after, end, level_of(max(1, weight // _EMPTY)), batches=some)


def _of_tiers(tiers: Sequence[Tier]) -> list[Merge]:
    merges = []
    run: list[Tier] = []
    for tier in tiers:
        if run and (tier.after != run[-1].upto or tier.level != run[-1].level):
            run = []
        run.append(tier)
        if len(run) == TIER_TIERS:
            merges.append(Merge(run[0].after, tier.upto, tier.level + 1, run))
            run = []
    return merges


def _is_small(merge: Merge) -> bool:
    """Whether a view by window gains by it."""
    return merge.level <= WINDOW_LEVEL or sum(tier.parts.rows for tier in merge.tiers) <= WINDOW_ROWS


def _of_many(tiers: Sequence[Tier], *, by_window: bool) -> list[Merge]:
    """One tier of two neighbours of different levels, if there are so many that they meet no others of their own."""
    if sum(not by_window or tier.level < WINDOW_LEVEL for tier in tiers) <= _TIERS_MAX:
        return []
    pairs = [merge for pair in itertools.pairwise(tiers) if _is_small(merge := _of_pair(*pair)) or not by_window]
    return sorted(pairs, key=lambda merge: max(tier.level for tier in merge.tiers))[:1]


def _of_pair(a: Tier, b: Tier) -> Merge:
    level = max(a.level, b.level) + (a.level == b.level)  # at least 2, as of all made of tiers
    return Merge(a.after, b.upto, level, [a, b])


def views_to_roll_up(job: Job, manifest: Manifest, stores: Mapping[str, StoreNode]) -> list[str]:
    """Views whose reads would open too many files."""
    return [
        view
        for view, node in stores.items()
        if not manifest.others(view, node.monoid.signature)
        and plan_merges(manifest, view, by_window=_is_by_window(job, view))
    ]


def _is_by_window(job: Job, view: str) -> bool:
    node = job.stores().get(view)  # none of what only runs read
    return node is not None and batch_of(node, job.batch_length_ms) is not None


def roll_up(
    sc: SparkContext,
    job: Job,
    stores: Mapping[str, StoreNode],
    manifest: Manifest,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Make the tiers of views that are worth it. They are visible together, level by level."""
    for view in views_to_roll_up(job, manifest, stores):
        by_window = _is_by_window(job, view)
        while merges := plan_merges(manifest, view, by_window=by_window):
            with watched(sc, "roll up", (), progress):
                _roll_up(sc, job, manifest, view, stores[view].monoid, merges)


def _roll_up(
    sc: SparkContext, job: Job, manifest: Manifest, view: str, monoid: Monoid, merges: Sequence[Merge]
) -> None:
    folder = job.directory / "views" / view
    group_rows = SMALL_GROUP_ROWS if _is_by_window(job, view) else ROW_GROUP_ROWS
    version = new_version()
    targets = []
    for number, merge in enumerate(merges):
        sources = [(folder / "base" / tier.version, tier.parts) for tier in merge.tiers]
        sources += [
            (folder / f"batch={n}" / batch.version_of(batch.views[view]), batch.views[view])
            for n, batch in merge.batches
        ]
        files = [at / parts.file_of(i) for at, parts in sources for i, n in enumerate(parts.part_rows) if n]
        count = max(1, -(-sum(parts.rows for _, parts in sources) // ROWS_PER_PART))
        targets.append(_Target(tuple(files), count, folder / "base" / f"{version}-{number}"))
    note = intend(job.directory, version, [f"views/{view}/base/{target.folder.name}" for target in targets])
    made = []
    for merge, target, parts in zip(merges, targets, _merged(sc, targets, monoid, group_rows), strict=True):
        if merge.tiers:
            children = target.folder / CHILDREN
            files_of(children).write(children, msgspec.json.encode(merge.tiers))
        made.append(Tier(target.folder.name, merge.after, merge.upto, merge.level, parts))
    replaced = {tier.version for merge in merges for tier in merge.tiers}
    kept = [tier for tier in manifest.tiers.get(view, ()) if tier.version not in replaced]
    manifest.tiers[view] = sorted([*kept, *made], key=lambda tier: tier.upto)
    manifest.save(job.directory)
    settle(note)


@dataclass(frozen=True)
class _Target:
    """What the files of a tier are made of."""

    files: tuple[Location, ...]
    count: int
    """Of its parts."""
    folder: Location


def _merged(
    sc: SparkContext, targets: Sequence[_Target], monoid: Monoid, group_rows: int = ROW_GROUP_ROWS
) -> list[Parts]:
    """Make tiers by one Spark job; their parts."""
    places = [(target.count, target.folder) for target in targets]
    shared = sc.broadcast(pack((monoid, places, worker_memory(sc))))
    tasks = []
    for number, target in enumerate(targets):
        several = min(TIER_BATCHES, max(1, len(target.files) // TIER_BATCHES))
        tasks += [(number, target.files[i::several]) for i in range(several)]
    total = sum(target.count for target in targets)
    try:
        rdd = sc.parallelize(tasks, min(len(tasks), 4 * cores(sc))).mapPartitions(_Read(shared))
        written = collected(rdd.partitionBy(total, int).mapPartitionsWithIndex(_Write(shared, group_rows)))
    finally:
        shared.destroy()
    made = [Parts(0, [0] * target.count, [""] * target.count) for target in targets]
    for number, index, rows, path in written:
        parts = made[number]
        if isinstance(path, Path):
            path.replace(path.with_name(part_name(index)))
        parts.files[index] = path.name
        parts.part_rows[index] = rows
        parts.rows += rows
    for target, parts in zip(targets, made, strict=True):
        if isinstance(target.folder, Path):
            target.folder.mkdir(parents=True, exist_ok=True)
            sync(target.folder)
            sync(target.folder.parent)
            parts.files = []
    return made


class _Read:
    """Merges what one task reads: (partition, rows (encoded key, encoded accumulator))."""

    def __init__(self, shared: Any) -> None:
        self._shared = shared

    def __call__(self, tasks: Iterable[tuple[int, Sequence[Location]]]) -> Iterator[tuple[int, bytes]]:
        monoid, targets, memory_bytes = unpack(self._shared.value)
        begins, memory = _begins(targets), Memory(memory_bytes)
        for number, files in tasks:
            count, table = targets[number][0], dict[bytes, Any]()
            for path in files:
                for some in sliced(read_rows(path), _ROWS):
                    merge_rows(table, [(key, monoid.decode(value)) for key, value in some], monoid)
                    if (is_full := memory.is_full()) or len(table) > _TABLE_MAX:
                        yield from _blocks(table, monoid, begins[number], count)
                        table = {}
                        if is_full:
                            memory.emptied()
            yield from _blocks(table, monoid, begins[number], count)


def _begins(targets: Sequence[tuple[int, Location]]) -> list[int]:
    """Where the partitions of each target begin."""
    begins = [0]
    for count, _ in targets:
        begins.append(begins[-1] + count)
    return begins


def _blocks(table: dict[bytes, Any], monoid: Monoid, begin: int, count: int) -> Iterator[tuple[int, bytes]]:
    packer = Packer()
    for some in sliced(table.items(), _ROWS):
        buckets: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, acc in some:
            p = begin + (stable_hash(decode_key(key)) % count if count > 1 else 0)
            buckets.setdefault(p, []).append((key, monoid.encode(acc)))
        for p, rows in buckets.items():
            yield from ((p, block) for block in packer.pack(None, rows))


class _Write:
    """Writes a part: (target, index, rows, path)."""

    def __init__(self, shared: Any, group_rows: int) -> None:
        self._shared, self._group_rows = shared, group_rows

    def __call__(self, partition: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int, int, Location]]:
        monoid, targets, memory_bytes = unpack(self._shared.value)
        begins = _begins(targets)
        number = next(i for i in range(len(targets)) if partition < begins[i + 1])
        index, folder = partition - begins[number], targets[number][1]
        tables = PartTables(monoid, Memory(memory_bytes), local_directory(partition), lambda _: _raise)
        for _, block in blocks:
            tables.take((index,), [(decode_key(key), monoid.decode(value)) for key, value in unpacked(block)[1]])
        for _, rows in tables.parts():
            path = unused(folder, index)
            yield number, index, write_part(path, rows, monoid, _raise, group_rows=self._group_rows), path


def _raise(key: Any, acc: Any, error: Exception) -> None:
    raise error
