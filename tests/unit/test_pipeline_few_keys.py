"""Few keys of batches whose views have many parts: each is found, whichever of the parts have no rows."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.pipeline import Manifest, exchange
from tests.unit.pipeline_model import World, model


def computed(directory: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int) -> World:
    model(monkeypatch)
    monkeypatch.setattr(exchange, "PART_BYTES", part_bytes)
    world = World(directory, windows=True)
    world.write(*range(4), count=30, upto=3)
    world.run()
    return world


@pytest.mark.parametrize("part_bytes", [64, 100])
def test_each_key_is_found_where_the_last_parts_have_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    world = computed(tmp_path, monkeypatch, part_bytes)
    parts = [done.views["counts"] for done in Manifest.load(tmp_path).batches.values()]
    assert [one for one in parts if len(one.part_rows) < one.divided]
    world.check()


def test_all_parts_are_looked_into_if_an_earlier_run_did_not_say_how_keys_are_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = computed(tmp_path, monkeypatch, 100)
    manifest = Manifest.load(tmp_path)
    for n, done in list(manifest.batches.items()):
        for parts in done.views.values():
            parts.divided = 0
        manifest.batches.amend(n, done)
    manifest.save(tmp_path)
    assert {parts.divided for done in Manifest.load(tmp_path).batches.values() for parts in done.views.values()} == {0}
    world.check()
