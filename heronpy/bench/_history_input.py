"""Made-up histories: what a batch side has after so many runs, as far as the next one looks at it."""

from __future__ import annotations

from pathlib import Path

from heronpy.archive import Archive, ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job
from heronpy.pipeline.batch import KEPT, TIER_BATCHES, TIER_TIERS
from heronpy.pipeline.inputs import listing_of
from heronpy.pipeline.manifest import Batch, Manifest, Parts, Seen, Tier
from heronpy.pipeline.partials import pickled
from heronpy.pipeline.parts import part_name, sorted_rows, unused, write_part
from heronpy.pipeline.pending import decide
from heronpy.pipeline.plan import plan_batch
from heronpy.streamlet import Builder, Config, Max, Monoid, Sum
from heronpy.streamlet.runner import Program

LENGTH_MS = 10_000
KEYS = 1_000
"""Of each view; each batch has all of them."""
TAIL = 8
"""Batches that are in no tier yet."""


def job_at(directory: Path) -> Job:
    """The program: words, counted by batch, and from the beginning."""
    builder, config = Builder(), Config()
    words = builder.new_source(ListSource([("w", 1)])).archive(name="words")
    pairs = words.map(lambda word: (word, 1))
    pairs.to_store("counts", Sum())
    pairs.reduce_by_key(lambda a, b: a + b).to_store("totals", Max())
    config.set_pipeline(directory, batch_length=LENGTH_MS // 1000)
    return Job.of(Program("history", config, builder.graph))


def grow(directory: Path, batches: int) -> None:
    """Make a history of so many batches; its files are not those of a real one, but for the view's tiers."""
    job = job_at(directory)
    ((_, node),) = job.archives().items()
    folder = Path(str(job.archive_path(node)))
    with_writer(folder, batches).close()
    for n in range(batches):
        (folder / f"batch={n}").mkdir()
        (folder / f"batch={n}" / f"1-0-{n:012x}.parquet").write_bytes(b"never read")
    seen = {
        n: Seen(listing_of(files), f"{n}:{KEYS}:{n:016x}", len(files), sum(file.size_bytes for file in files))
        for n, files in Archive(folder).batches().items()
    }
    inputs = {n: {node.stage: found.fingerprint} for n, found in seen.items()}
    manifest = Manifest(LENGTH_MS, committed_watermark=batches - 1)
    monoids = {view: store.monoid for view, store in plan_batch(job).stores().items()}
    signatures = {view: monoid.signature for view, monoid in monoids.items()}
    work = decide(
        manifest,
        inputs,
        archives={node.stage: node.archive_name},
        closable=batches - 1,
        lookback=None,
        reach=0,
        views=signatures,
        sinks=[],
        windows={},
    )
    for n in range(batches):
        made = Batch(_version(n), work.fingerprints[n], elements=KEYS, finished_at_s=n * 10.0, took_s=1.0)
        made.inputs, made.monoids = inputs[n], dict(signatures)
        made.views = {view: Parts(KEYS, [KEYS]) for view in monoids}
        manifest.batches[n] = made
        manifest.batches.set_seen(node.stage, n, seen[n])
    for view, monoid in monoids.items():
        for n in range(batches - TAIL, batches):
            _write(directory / "views" / view / f"batch={n}" / _version(n), monoid)
    manifest.save(directory)
    for view, monoid in monoids.items():  # of batches that stay as they are from now on
        manifest.tiers[view] = _tiers(directory / "views" / view / "base", monoid, batches - TAIL)
    manifest.save(directory)


def with_writer(folder: Path, batches: int) -> ArchiveWriter:
    """A writer of the archive, which is complete up to a batch."""
    writer = ArchiveWriter(
        folder, task="0", batch_length_ms=LENGTH_MS, codec="columns", dead_letter=_refuse, run="bench"
    )
    writer.progress(batches * LENGTH_MS)
    return writer


def _version(batch: int) -> str:
    return f"1{batch:010x}-00000000"


def _tiers(folder: Path, monoid: Monoid, batches: int) -> list[Tier]:
    """Those that runs of one batch each have made."""
    tiers: list[Tier] = []
    after = -1
    while (left := batches - 1 - after) >= TIER_BATCHES:
        level = 1
        while TIER_BATCHES * TIER_TIERS**level <= left:
            level += 1
        upto = after + TIER_BATCHES * TIER_TIERS ** (level - 1)
        if batches - 1 - upto < TIER_BATCHES:  # every history has the same tail
            upto = batches - 1
        tiers.append(Tier(_version(upto), None if after < 0 else after, upto, level, Parts(KEYS, [KEYS])))
        _write(folder / _version(upto), monoid)
        after = upto
    return tiers


def _write(folder: Path, monoid: Monoid) -> None:
    path = Path(str(unused(folder, 0)))
    kept = folder.parts[-3].startswith(KEPT)
    rows = [(pickled(f"w{key}") if kept else f"w{key}", monoid.lift(1)) for key in range(KEYS)]
    write_part(path, sorted_rows(rows, monoid, _refuse), monoid, _refuse)
    path.rename(folder / part_name(0))


def _refuse(*what: object) -> None:
    raise AssertionError(what)
