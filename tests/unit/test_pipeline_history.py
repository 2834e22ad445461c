"""Manifests of long histories: what is read and written of them, and what dies in between."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyarrow", reason="batch views are Parquet files")

from heronpy.connectors import ListSource
from heronpy.errors import NotFoundError, StateError
from heronpy.pipeline import Job, Manifest, running
from heronpy.pipeline import manifest as manifests
from heronpy.pipeline.manifest import Batch, Parts, Seen, Tier
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program

BATCHES = 1000
_NUMBERS = itertools.count()


def batch(elements: int = 1) -> Batch:
    version = f"{next(_NUMBERS):x}-00000000"
    return Batch(version, "f", elements=elements, views={"counts": Parts(2, [2])}, monoids={"counts": "Sum()"})


def saved(directory: Path, batches: int = BATCHES) -> Manifest:
    manifest = Manifest(10_000, committed_watermark=batches - 1)
    for n in range(batches):
        manifest.batches[n] = batch()
        manifest.batches.set_seen("events", n, Seen("l", f"{n}:3:00", 1, 100))
    manifest.save(directory)
    return manifest


def files(directory: Path) -> set[str]:
    return {path.name for path in (directory / manifests.HISTORY).iterdir()}


def read_files(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found: list[Path] = []
    read = Path.read_bytes

    def noted(path: Path) -> bytes:
        found.append(path)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    return found


def test_a_run_reads_and_writes_the_last_segment_of_a_long_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    before, read = files(tmp_path), read_files(monkeypatch)
    manifest = Manifest.load(tmp_path, 10_000)
    assert [path.name for path in read] == ["manifest.json"]
    manifest.batches[BATCHES] = batch()
    manifest.save(tmp_path)
    assert len(read) == 2
    assert len(files(tmp_path) - before) == 1
    loaded = Manifest.load(tmp_path)
    assert (len(loaded.batches), loaded.view_rows("counts")) == (BATCHES + 1, 2 * (BATCHES + 1))
    assert list(loaded.batches) == list(range(BATCHES + 1))
    assert loaded == manifest


def test_a_late_batch_replaces_one_segment(tmp_path: Path) -> None:
    saved(tmp_path)
    before = {segment.name for segment in Manifest.load(tmp_path).batches.segments()}
    manifest = Manifest.load(tmp_path)
    manifest.batches[300] = late = batch(elements=7)
    manifest.save(tmp_path)
    after = Manifest.load(tmp_path)
    assert len({segment.name for segment in after.batches.segments()} - before) == 1
    assert after.batches[300] == late
    assert sum(segment.elements for segment in after.batches.segments()) == BATCHES + 6


def test_batches_in_any_order_are_what_a_dict_has(tmp_path: Path) -> None:
    manifest, model = Manifest(10_000), dict[int, Batch]()
    for i in range(1500):
        n = (i * 7919) % 3001 - 1500
        manifest.batches[n] = model[n] = batch()
        if i % 100 == 99:
            manifest.save(tmp_path)
            manifest = Manifest.load(tmp_path)
    for n in list(model)[::3]:
        del manifest.batches[n], model[n]
    manifest.save(tmp_path)
    loaded = Manifest.load(tmp_path)
    assert dict(loaded.batches.items()) == model
    assert list(loaded.batches) == sorted(model)
    assert list(reversed(loaded.batches)) == sorted(model, reverse=True)
    assert dict(loaded.batches.between(-7, 900)) == {n: done for n, done in model.items() if -7 <= n <= 900}
    assert max(segment.done for segment in loaded.batches.segments()) <= 512


def test_of_a_damaged_segment_is_said_which_and_the_others_are_read(tmp_path: Path) -> None:
    saved(tmp_path)
    name = next(segment.name for segment in Manifest.load(tmp_path).batches.segments() if segment.first == 256)
    path = tmp_path / manifests.HISTORY / name
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"elements":1', b'"elements":9', 1))
    manifest = Manifest.load(tmp_path)
    assert manifest.batches[999].elements == 1
    with pytest.raises(StateError, match=f"{name} is damaged: its checksum"):
        manifest.batches[300]
    path.unlink()
    with pytest.raises(NotFoundError, match=f"{name} is gone"):
        manifest.batches[300]
    path.write_bytes(content)
    assert manifest.batches[300].elements == 1


def test_who_has_loaded_a_manifest_reads_it_while_runs_go_on(tmp_path: Path) -> None:
    saved(tmp_path)
    reader = Manifest.load(tmp_path)
    for n in range(5):
        run = Manifest.load(tmp_path)
        run.batches[900] = batch(elements=n)
        run.save(tmp_path)
    assert reader.batches[900].elements == 1


def test_who_has_loaded_a_manifest_reads_it_after_a_run_that_replaced_many_segments(tmp_path: Path) -> None:
    saved(tmp_path, 64 * 256)
    reader = Manifest.load(tmp_path)
    run = Manifest.load(tmp_path)
    for n in range(0, 64 * 256, 256):
        run.batches[n] = batch(elements=2)
    run.save(tmp_path)
    assert sum(done.elements for done in reader.batches.values()) == 64 * 256


def test_what_was_replaced_does_not_stay_for_ever(tmp_path: Path) -> None:
    saved(tmp_path)
    reader = Manifest.load(tmp_path)
    for _ in range(40):
        run = Manifest.load(tmp_path)
        run.batches[900] = batch()
        run.save(tmp_path)
    assert len(files(tmp_path)) <= 4 + 32
    assert files(tmp_path) == run.segment_files()
    with pytest.raises(NotFoundError, match="a run has replaced it"):
        reader.batches[900]


def test_a_run_that_dies_before_its_manifest_counts_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved(tmp_path)
    manifest = Manifest.load(tmp_path)
    manifest.batches[300] = batch(elements=9)
    with monkeypatch.context() as patched:
        patched.setattr(manifests, "replace_file", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == before
    assert files(tmp_path) > before.segment_files()
    monkeypatch.setattr(running._Run, "_compute", lambda *_: None)
    running.run(job_at(tmp_path), until_ms=0)
    assert files(tmp_path) == Manifest.load(tmp_path).segment_files()


def job_at(directory: Path) -> Job:
    builder, config = Builder(), Config()
    builder.new_source(ListSource([("a", 1)])).archive().to_store("counts", Sum())
    config.set_pipeline(directory, batch_length=10)
    return Job.of(Program("history", config, builder.graph))


def former(directory: Path, **base: Any) -> None:
    batches = {str(n): {"version": f"v{n}", "fingerprint": "f", "views": {"counts": {"rows": 1}}} for n in range(600)}
    content = {
        "format": 2,
        "batch_length_ms": 10_000,
        "committed_watermark": 599,
        "batches": batches,
        "bases": {"counts": {"version": "r", "upto": 99, "batches": {str(n): f"v{n}" for n in range(100)}} | base},
        "unread": {"x": "1"},
    }
    (directory / manifests.MANIFEST_FILE).write_bytes(msgspec.json.encode(content))


def test_a_manifest_of_format_2_is_read_with_its_roll_up_and_saved_in_segments(tmp_path: Path) -> None:
    former(tmp_path)
    read = Manifest.load(tmp_path, 10_000)
    assert read.tiers == {"counts": [Tier("r", None, 99, 2)]}
    assert (len(read.batches), read.batches[599].version, read.unread) == (600, "v599", {"x": "1"})
    read.save(tmp_path)
    loaded = Manifest.load(tmp_path)
    assert loaded == read
    assert [segment.first for segment in loaded.batches.segments()] == [0, 256, 512]


def test_a_roll_up_of_format_2_that_no_longer_counts_is_left_out(tmp_path: Path) -> None:
    former(tmp_path, batches={"0": "another"})
    assert Manifest.load(tmp_path).tiers == {}
