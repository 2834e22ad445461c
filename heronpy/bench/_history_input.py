"""Made-up histories: what a batch side has after so many runs, as far as the next one looks at it."""

from __future__ import annotations

from pathlib import Path

from heronpy.archive import Archive, ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job
from heronpy.pipeline.batch import TIER_BATCHES, TIER_TIERS
from heronpy.pipeline.inputs import listing_of
from heronpy.pipeline.manifest import Batch, Manifest, Parts, Seen, Tier
from heronpy.pipeline.parts import part_name, sorted_rows, unused, write_part
from heronpy.pipeline.pending import decide
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program

LENGTH_MS = 10_000
KEYS = 1_000
"""Of the view; each batch has all of them."""
TAIL = 8
"""Batches that are in no tier yet."""
_VIEW = "counts"


def job_at(directory: Path) -> Job:
    """The program: words, counted."""
    builder, config = Builder(), Config()
    words = builder.new_source(ListSource([("w", 1)])).archive(name="words")
    words.map(lambda word: (word, 1)).to_store(_VIEW, Sum())
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
    signature = Sum().signature
    work = decide(
        manifest,
        inputs,
        archives=[node.stage],
        closable=batches - 1,
        lookback=0,
        reach=0,
        views={_VIEW: signature},
        sinks=[],
    )
    for n in range(batches):
        made = Batch(_version(n), work.fingerprints[n], elements=KEYS, finished_at_s=n * 10.0, took_s=1.0)
        made.inputs, made.views, made.monoids = inputs[n], {_VIEW: Parts(KEYS, [KEYS])}, {_VIEW: signature}
        manifest.batches[n] = made
        manifest.batches.set_seen(node.stage, n, seen[n])
    for n in range(batches - TAIL, batches):
        _write(directory / "views" / _VIEW / f"batch={n}" / _version(n))
    manifest.save(directory)
    manifest.tiers[_VIEW] = _tiers(directory, batches - TAIL)  # of batches that stay as they are from now on
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


def _tiers(directory: Path, batches: int) -> list[Tier]:
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
        _write(directory / "views" / _VIEW / "base" / _version(upto))
        after = upto
    return tiers


def _write(folder: Path) -> None:
    path = Path(str(unused(folder, 0)))
    rows = sorted_rows([(f"w{key}", 1) for key in range(KEYS)], Sum(), _refuse)
    write_part(path, rows, Sum(), _refuse)
    path.rename(folder / part_name(0))


def _refuse(*what: object) -> None:
    raise AssertionError(what)
