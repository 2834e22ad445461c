"""Reading batch views by key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


def write(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    path = Path(str(unused(folder, 0)))
    write_part(path, sorted_rows([("the", count)], Sum(), refuse), Sum(), refuse)
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
