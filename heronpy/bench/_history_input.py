"""Made-up histories: what a batch side has after so many runs, as far as the next one looks at it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from heronpy.archive import Archive, ArchiveFile, ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job
from heronpy.pipeline.batch import KEPT, TIER_BATCHES, TIER_TIERS
from heronpy.pipeline.inputs import listing_of, named
from heronpy.pipeline.manifest import CHILDREN, Batch, Manifest, Parts, Seen, Tier
from heronpy.pipeline.partials import pickled
from heronpy.pipeline.parts import ROW_GROUP_ROWS, SMALL_GROUP_ROWS, part_name, sorted_rows, unused, write_part
from heronpy.pipeline.pending import decide
from heronpy.pipeline.plan import plan_batch
from heronpy.pipeline.rollup import WINDOW_LEVEL, WINDOW_ROWS
from heronpy.streamlet import Builder, Config, KeyedWindow, Max, Monoid, Sum, Window, WindowConfig
from heronpy.streamlet.runner import Program

LENGTH_MS = 10_000
KEYS = 1_000
"""Words; each batch has all of them once."""
GROUPS = 10
"""Of words, which are counted by window."""
TAIL = 8
"""Batches that are in no tier yet."""
LATE = 10
"""The batch that late files are for; it is in tiers of all levels."""
REACH = 2
"""How many batches a window reaches over."""


def job_at(directory: Path) -> Job:
    """The program: words, counted by batch, from the beginning, and their groups by window."""
    builder, config = Builder(), Config()
    words = builder.new_source(ListSource(["w0"], times=[0], ids=["0"])).archive(name="words")
    pairs = words.map(lambda word: (word, 1))
    pairs.to_store("counts", Sum())
    pairs.reduce_by_key(lambda a, b: a + b).to_store("totals", Max())
    groups = words.map(lambda word: (f"g{int(word[1:]) % GROUPS}", 1))
    window = WindowConfig(REACH * LENGTH_MS // 1000, LENGTH_MS // 1000)
    groups.reduce_by_key_and_window(window, lambda a, b: a + b).to_store("windows", Sum())
    config.set_pipeline(directory, batch_length=LENGTH_MS // 1000)
    return Job.of(Program("history", config, builder.graph))


def window_key(batch: int, group: int) -> KeyedWindow:
    """The key of the window that ends with a batch."""
    end = (batch + 1) * LENGTH_MS / 1000
    return KeyedWindow(f"g{group}", Window(end - REACH * LENGTH_MS / 1000, end))


def grow(directory: Path, batches: int) -> None:
    """Make a history of so many batches.

    Files are those of a real one where runs read them: what is archived in the first batches, of which some are late,
    and in the last ones, into which windows reach; tiers, and what those are made of that the late batches are in.
    """
    job = job_at(directory)
    ((_, node),) = job.archives().items()
    folder = Path(str(job.archive_path(node)))
    real = {*range(min(batches, TIER_BATCHES)), *range(max(0, batches - TAIL), batches)}
    with closing(with_writer(folder, batches)) as writer:
        for n in sorted(real):
            for i in range(KEYS):
                writer.add(f"{n}-{i}", n * LENGTH_MS + i, f"w{i}")
            writer.commit()
    for n in range(batches):
        if n not in real:
            (folder / f"batch={n}").mkdir()
            (folder / f"batch={n}" / f"1-0-{n:012x}.parquet").write_bytes(b"never read")
    archive = Archive(folder)
    there = archive.batches()
    seen = {n: _seen(archive, n, files, real=n in real) for n, files in there.items()}
    inputs = {n: {node.stage: found.fingerprint} for n, found in seen.items()}
    manifest = Manifest(LENGTH_MS, committed_watermark=batches - 1)
    plan = plan_batch(job)
    monoids = {view: store.monoid for view, store in plan.stores().items()}
    signatures = {view: monoid.signature for view, monoid in monoids.items()}
    work = decide(
        manifest,
        inputs,
        archives={node.stage: node.archive_name},
        closable=batches - 1,
        lookback=None,
        reach=REACH,
        views=signatures,
        sinks=[],
        windows={},
        carried_lookback=REACH,
    )
    for n in range(batches):
        made = Batch(_version(n), work.fingerprints[n], elements=KEYS, finished_at_s=n * 10.0, took_s=1.0)
        made.direct, made.inputs, made.monoids = work.direct[n], inputs[n], dict(signatures)
        made.files = {node.stage: sorted(named(file.path.name for file in there[n]))}
        made.views = {view: _parts(view, 1) for view in monoids}
        manifest.batches[n] = made
        manifest.batches.set_seen(node.stage, n, seen[n])
    manifest.save(directory)
    for view, monoid in monoids.items():  # of batches that stay as they are from now on
        for n in range(batches - TAIL, batches):
            _write(directory / "views" / view / f"batch={n}" / _version(n), monoid, n - 1, n)
        manifest.tiers[view] = _tiers(directory / "views" / view, monoid, batches - TAIL)
    manifest.save(directory)


def with_writer(folder: Path, batches: int) -> ArchiveWriter:
    """A writer of the archive, which is complete up to a batch."""
    writer = ArchiveWriter(
        folder, task="0", batch_length_ms=LENGTH_MS, codec="columns", dead_letter=_refuse, run="bench"
    )
    writer.progress(batches * LENGTH_MS)
    return writer


def _seen(archive: Archive, batch: int, files: list[ArchiveFile], *, real: bool) -> Seen:
    fingerprint = archive.fingerprint(files) if real else f"{batch}:{KEYS}:{batch:016x}"
    return Seen(listing_of(files), fingerprint, len(files), sum(file.size_bytes for file in files))


def _version(batch: int, level: int = 0) -> str:
    return f"1{level:02x}{batch:010x}-00000000"


def _parts(view: str, batches: int) -> Parts:
    """Windows of each batch are others, and words are the same."""
    rows = batches * GROUPS if view == "windows" else KEYS
    return Parts(rows, [rows])


def _tiers(folder: Path, monoid: Monoid, batches: int) -> list[Tier]:
    """Those that runs of one batch each have made."""
    tiers: list[Tier] = []
    after = -1
    while (left := batches - 1 - after) >= TIER_BATCHES:
        level = 1
        while _batches_at(level + 1) <= left and _is_merged(folder.name, level + 1):
            level += 1
        upto = after + _batches_at(level)
        if batches - 1 - upto < TIER_BATCHES:  # every history has the same tail
            upto = batches - 1
        tiers.append(_tier(folder, monoid, after, upto, level))
        after = upto
    return tiers


def _is_merged(view: str, level: int) -> bool:
    return view != "windows" or level <= WINDOW_LEVEL or _batches_at(level) * GROUPS <= WINDOW_ROWS


def _batches_at(level: int) -> int:
    return int(TIER_BATCHES * TIER_TIERS ** (level - 1))


def _tier(folder: Path, monoid: Monoid, after: int, upto: int, level: int) -> Tier:
    """A tier; if late batches are in it, with all that it is made of."""
    tier = Tier(_version(upto, level), None if after < 0 else after, upto, level, _parts(folder.name, upto - after))
    _write(folder / "base" / tier.version, monoid, after, upto)
    if after < LATE <= upto and level > 1:
        ends = [after + i * _batches_at(level - 1) for i in range(TIER_TIERS)] + [upto]
        children = [_tier(folder, monoid, *span, level - 1) for span in itertools.pairwise(ends)]
        (folder / "base" / tier.version / CHILDREN).write_bytes(msgspec.json.encode(children))
    elif after < LATE <= upto:
        for n in range(after + 1, upto + 1):
            _write(folder / f"batch={n}" / _version(n), monoid, n - 1, n)
    return tier


def _write(folder: Path, monoid: Monoid, after: int, upto: int) -> None:
    path = Path(str(unused(folder, 0)))
    rows = _rows(folder.parts[-3], after, upto)
    lifted = ((key, monoid.lift(value)) for key, value in rows)
    group_rows = SMALL_GROUP_ROWS if folder.parts[-3] == "windows" else ROW_GROUP_ROWS
    write_part(path, sorted_rows(lifted, monoid, _refuse), monoid, _refuse, group_rows=group_rows)
    path.rename(folder / part_name(0))


def _rows(view: str, after: int, upto: int) -> Iterable[tuple[Any, int]]:
    """What a view has of some batches."""
    if view == "windows":
        return _window_rows(after, upto)
    value = upto + 1 if view == "totals" else upto - after
    return ((pickled(f"w{i}") if view.startswith(KEPT) else f"w{i}", value) for i in range(KEYS))


def _window_rows(after: int, upto: int) -> Iterator[tuple[KeyedWindow, int]]:
    for batch in range(after + 1, upto + 1):
        for group in range(GROUPS):
            yield window_key(batch, group), min(REACH, batch + 1) * KEYS // GROUPS


def _refuse(*what: object) -> None:
    raise AssertionError(what)
