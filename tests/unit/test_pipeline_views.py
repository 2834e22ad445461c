"""Reading batch views by key."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="batch views are Parquet files")

from heronpy.pipeline import ViewReader
from heronpy.pipeline.manifest import Batch, History, Manifest, Parts, Tier
from heronpy.pipeline.parts import part_name, sorted_rows, unused, write_part
from heronpy.streamlet import Sum


class Scanned(History):
    """Counts how often somebody looks through batches."""

    scans = 0

    def between(self, first: int | None, last: int | None) -> Iterator[tuple[int, Batch]]:
        self.scans += 1
        return super().between(first, last)


def refuse(*args: object) -> None:
    raise AssertionError(args)


def write(folder: Path, count: int, key: Any = "the") -> None:
    folder.mkdir(parents=True)
    path = Path(str(unused(folder, 0)))
    write_part(path, sorted_rows([(key, count)], Sum(), refuse), Sum(), refuse)
    path.rename(folder / part_name(0))


def test_reads_by_key_look_through_the_history_once(tmp_path: Path) -> None:
    views = {"counts": Parts(1, [1])}
    done = {n: Batch(f"v{n}", "f", views=views, monoids={"counts": Sum().signature}) for n in range(4)}
    manifest = Manifest(60_000, committed_watermark=3, batches=(scanned := Scanned()))
    scanned.update(done)
    manifest.tiers["counts"] = [Tier("r", None, 1, 1, Parts(1, [1]))]
    folder = tmp_path / "views" / "counts"
    write(folder / "base" / "r", 100)
    for batch in (2, 3):
        write(folder / f"batch={batch}" / f"v{batch}", batch)
    reader = ViewReader(tmp_path, "counts", Sum(), manifest)
    assert reader.get("the", 3) == 105
    before = scanned.scans
    assert [reader.get(key, 3) for key in ("the", "cow", "the")] == [105, None, 105]
    assert scanned.scans == before, "with 20,000 batches a look through them takes 40 ms"
    assert reader.get("the", 2) == 102, "up to another batch it is another answer"
    reader.close()


def test_totals_have_each_key_once_that_a_read_by_key_takes_for_one(tmp_path: Path) -> None:
    done = {n: Batch(f"v{n}", "f", views={"counts": Parts(1, [1])}) for n in range(2)}
    manifest = Manifest(60_000, committed_watermark=1)
    manifest.batches.update(done)
    for batch in done:
        write(tmp_path / "views" / "counts" / f"batch={batch}" / f"v{batch}", 1, math.nan)
    with contextlib.closing(ViewReader(tmp_path, "counts", Sum(), manifest)) as reader:
        assert reader.get(math.nan) == 2
        assert [acc for _, acc in reader.totals()] == [2]
