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
from heronpy.pipeline.parts import (
    ROW_GROUP_ROWS,
    SMALL_GROUP_ROWS,
    groups_together,
    opened_part,
    part_name,
    read_groups,
    sorted_rows,
    unused,
    write_part,
)
from heronpy.pipeline.views import read_rows
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


KEYS = 10_000


@pytest.mark.parametrize("group_rows", [ROW_GROUP_ROWS, SMALL_GROUP_ROWS, 7])
def test_a_key_is_found_whatever_row_groups_its_part_has(tmp_path: Path, group_rows: int) -> None:
    folder = tmp_path / "views" / "counts" / "base" / "r"
    folder.mkdir(parents=True)
    path = Path(str(unused(folder, 0)))
    rows = sorted_rows([(f"k{i}", i) for i in range(KEYS)], Sum(), refuse)
    assert write_part(path, rows, Sum(), refuse, group_rows=group_rows) == KEYS
    path = path.rename(folder / part_name(0))
    with contextlib.closing(opened_part(path)) as file:
        assert file.num_row_groups == -(-KEYS // group_rows)
        together = [*groups_together(file)]
        assert [group for groups in together for group in groups] == [*range(file.num_row_groups)]
        assert len(together) == 1, "who reads all does not pay for small groups"
    assert [key for key, _ in read_rows(path)] == [row[0] for row in rows]
    manifest = Manifest(60_000, committed_watermark=0)
    manifest.tiers["counts"] = [Tier("r", None, 0, 1, Parts(KEYS, [KEYS]))]
    with contextlib.closing(ViewReader(tmp_path, "counts", Sum(), manifest)) as reader:
        assert all(reader.get(f"k{i}") == i for i in range(0, KEYS, 37))
        assert reader.get("k") is reader.get("z") is reader.get("k00") is None


def test_row_groups_that_were_read_are_kept_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = {"counts": Parts(1, [1])}
    manifest = Manifest(60_000, committed_watermark=9)
    read: list[Path] = []
    for n in range(10):
        manifest.batches[n] = Batch(f"v{n}", "f", views=views, monoids={"counts": Sum().signature})
        write(tmp_path / "views" / "counts" / f"batch={n}" / f"v{n}", n + 1, f"k{n}")
    monkeypatch.setattr("heronpy.pipeline.views._KEPT_BYTES", 0)
    monkeypatch.setattr(
        "heronpy.pipeline.views.read_groups", lambda file, groups: read.append(file) or read_groups(file, groups)
    )
    with contextlib.closing(ViewReader(tmp_path, "counts", Sum(), manifest)) as reader:
        assert [reader.get(f"k{n}", None, n) for n in (3, 3, 4, 3)] == [4, 4, 5, 4]
        assert len(read) == 3, "the last one stays, however large it is"
        monkeypatch.undo()
        assert [reader.get(f"k{n}", None, n) for n in (3, 4, 3, 4)] == [4, 5, 4, 5]


@pytest.mark.parametrize("long", [["a" * 5_000], ["z" * 5_000], ["a" * 5_000, "z" * 5_000], ["k" * 3_000_000]])
def test_keys_beside_one_that_is_too_long_for_the_statistics_of_its_file_are_found(
    tmp_path: Path, long: list[str]
) -> None:
    folder = tmp_path / "views" / "counts" / "batch=0" / "v"
    folder.mkdir(parents=True)
    keys = {key: n for n, key in enumerate([*long, *(f"k{n}" for n in range(9))])}
    path = Path(str(unused(folder, 0)))
    rows = write_part(path, sorted_rows(keys.items(), Sum(), refuse), Sum(), refuse, group_rows=3)
    path.rename(folder / part_name(0))
    manifest = Manifest(60_000, committed_watermark=0)
    parts = {"counts": Parts(rows, [rows])}
    manifest.batches.update({0: Batch("v", "f", views=parts, monoids={"counts": Sum().signature})})
    with contextlib.closing(ViewReader(tmp_path, "counts", Sum(), manifest)) as reader:
        assert {key: reader.get(key) for key in keys} == keys
        assert [reader.get(key) for key in ("", "a", "k", "zz", "a" * 5_001)] == [None] * 5
