"""Runs of a long history look at what is new, and miss nothing."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import Archive, ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job, Manifest, changes, run, running
from heronpy.pipeline.manifest import Batch, Parts
from heronpy.pipeline.pending import Work, committed_watermark
from heronpy.pipeline.status import collect
from heronpy.streamlet import Builder, Config, Sum, WindowConfig
from heronpy.streamlet.runner import Program

LENGTH_MS = 10_000
BATCHES = 40
IN_TURN = 5
_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def long_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few batches are many; and what Spark would compute is taken for computed."""
    monkeypatch.setattr(changes, "LISTED_BATCHES", 0)
    monkeypatch.setattr(changes, "_IN_TURN", IN_TURN)
    monkeypatch.setattr(running._Run, "_compute", compute)


def compute(self: Any, work: Work, lookback: int | None, sizes: Mapping[int, int]) -> None:
    for batch in list(work.pending):
        self._manifest.batches[batch] = Batch(
            f"{next(_NUMBERS):x}-00000000",
            work.fingerprints[batch],
            inputs=dict(work.inputs.get(batch, {})),
            views={"counts": Parts()},
            monoids={"counts": Sum().signature},
        )
        self._manifest.committed_watermark = committed_watermark(self._manifest, work, work.pending)
        self._manifest.save(self._job.directory)
        self._report.batches.append(batch)


def job_at(directory: Path, *, window_s: int = 0) -> Job:
    builder, config = Builder(), Config()
    stream = builder.new_source(ListSource([("a", 1)])).event_time(lambda _: 0).archive(name="events")
    if window_s:
        stream = stream.reduce_by_key_and_window(WindowConfig.create_tumbling_window(window_s), max)
    stream.to_store("counts", Sum())
    config.set_pipeline(directory, batch_length=10)
    return Job.of(Program("news", config, builder.graph))


class Writer:
    """Writes to the archive of a job."""

    def __init__(self, directory: Path) -> None:
        self.archive = Archive(directory / "archive" / "events")
        self._writer = ArchiveWriter(
            self.archive.directory, task="0", batch_length_ms=LENGTH_MS, codec="columns", dead_letter=print, run="r"
        )

    def add(self, *batches: int, upto: int | None = None) -> None:
        for batch in batches:
            self._writer.add(f"e{next(_NUMBERS)}", batch * LENGTH_MS, "word")
        self._writer.commit()
        if upto is not None:
            self._writer.progress((upto + 1) * LENGTH_MS)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Of an archive with a history that was computed."""
    made = Writer(tmp_path)
    made.add(*range(BATCHES), upto=BATCHES - 1)
    assert run(job_at(tmp_path)).batches == list(range(BATCHES))
    assert run(job_at(tmp_path)).batches == []
    return made


def refuse(*_: Any) -> Any:
    raise AssertionError("the whole archive is listed")


def files(writer: Writer, batch: int) -> list[Path]:
    return sorted((Path(str(writer.archive.directory)) / f"batch={batch}").iterdir())


def test_a_new_and_a_late_file_are_seen_at_once_and_little_else_is_looked_at(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Archive, "batches", refuse)
    looked: list[int] = []
    folder = Archive.folder

    def noted(archive: Archive, batch: int) -> Any:
        looked.append(batch)
        return folder(archive, batch)

    monkeypatch.setattr(Archive, "folder", noted)
    writer.add(BATCHES, 3, upto=BATCHES)
    assert run(job_at(tmp_path)).batches == [3, BATCHES]
    assert len(looked) <= IN_TURN + 2
    assert run(job_at(tmp_path)).batches == []
    assert writer.archive.announced() == []


def test_footers_of_what_is_as_it_was_are_not_read_again(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    footer = Archive.footer

    def noted(archive: Archive, file: Any) -> Any:
        read.append(file.batch)
        return footer(archive, file)

    monkeypatch.setattr(Archive, "footer", noted)
    writer.add(7)
    assert run(job_at(tmp_path), everything=True).batches == [7]
    assert set(read) == {7}


def test_a_file_that_comes_after_its_announcement_was_seen_is_for_the_next_run(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename
    waiting: list[tuple[Any, Any]] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", lambda tmp, to: waiting.append((tmp, to)))
        writer.add(3)
    assert run(job_at(tmp_path)).batches == []
    assert [said.batch for said in writer.archive.announced()] == [3]
    for tmp, to in waiting:
        rename(tmp, to)
    assert run(job_at(tmp_path)).batches == [3]
    assert writer.archive.announced() == []


def test_an_announcement_that_nothing_came_of_goes_after_a_day(tmp_path: Path, writer: Writer) -> None:
    (said,) = [Path(str(writer.archive.directory)) / "_new" / f"{batch}@1-x.parquet" for batch in (3,)]
    said.touch()
    run(job_at(tmp_path))
    assert said.exists()
    os.utime(said, (0, 0))
    run(job_at(tmp_path))
    assert not said.exists()


@pytest.mark.parametrize("what", ["added", "removed", "folder", "new folder"])
def test_what_somebody_has_changed_by_hand_is_found_in_turn_or_when_asked_for(
    tmp_path: Path, writer: Writer, what: str
) -> None:
    (path,) = files(writer, 17)
    if what == "added":
        path.with_name("mine.parquet").write_bytes(files(writer, 18)[0].read_bytes())
    elif what == "removed":
        path.unlink()
    elif what == "folder":
        path.unlink()
        path.parent.rmdir()
    else:
        path.parent.with_name("batch=-5").mkdir()
        (path.parent.with_name("batch=-5") / "mine.parquet").write_bytes(path.read_bytes())
    found = []
    for _ in range(BATCHES // IN_TURN + 2):
        try:
            report = run(job_at(tmp_path))
        except Exception as error:  # a file among those of another batch is damage
            found.append(str(error))
        else:
            found += report.notes + [f"batch {batch}" for batch in report.batches]
    assert found, "nothing was found in a whole turn"
    expected = "lost rows" if what in ("removed", "folder") else "cannot be done"
    assert any(expected in line for line in found)


def test_a_writer_that_announces_nothing_has_everything_looked_at(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = (Path(str(writer.archive.directory)) / "_progress").iterdir()
    record.write_text(record.read_text().replace('"announces": true', '"announces": false'))
    with monkeypatch.context() as patched:
        patched.setattr("heronpy.archive._writer.announce", lambda *_: None)
        writer.add(5)
    assert run(job_at(tmp_path)).batches == [5]
    with monkeypatch.context() as patched:
        patched.setattr("heronpy.archive._writer.announce", lambda *_: None)
        writer.add(6)
    record.write_text(record.read_text().replace('"announces": false', '"announces": true'))
    assert run(job_at(tmp_path)).batches == [6], "what came before the writers were exchanged"


def test_another_program_has_everything_looked_at(tmp_path: Path, writer: Writer) -> None:
    assert run(job_at(tmp_path, window_s=10)).batches == list(range(1, BATCHES))


def test_followers_of_a_late_file_are_computed_although_the_run_dies_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Writer(tmp_path)
    made.add(*range(BATCHES), upto=BATCHES - 1)
    run(job_at(tmp_path, window_s=20))
    made.add(7)
    save, saves = Manifest.save, itertools.count()

    def dies(manifest: Manifest, directory: Any) -> None:
        save(manifest, directory)
        if next(saves) == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "save", dies)
        with pytest.raises(KeyboardInterrupt):
            run(job_at(tmp_path, window_s=20))
    assert run(job_at(tmp_path, window_s=20)).batches == [8, 9]
    assert run(job_at(tmp_path, window_s=20)).batches == []


@pytest.mark.parametrize("seed", range(6))
def test_runs_that_look_at_what_is_new_do_what_runs_do_that_look_at_all(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    window_s = chance.choice([0, 10, 30])
    made, done, upto = Writer(tmp_path), 0, 0
    for _ in range(12):
        upto += chance.randrange(4)
        late = [chance.randrange(max(1, upto)) for _ in range(chance.randrange(3))]
        made.add(*range(done, upto + chance.randrange(2)), *late, upto=upto - 1)
        done = upto
        if chance.random() < 0.3:
            continue
        run(job_at(tmp_path, window_s=window_s))
        assert run(job_at(tmp_path, window_s=window_s), everything=True).batches == []


@pytest.mark.parametrize("window_s", [0, 20])
def test_a_done_batch_with_more_input_is_done_again_though_the_archive_is_not_complete_up_to_it(
    tmp_path: Path, window_s: int
) -> None:
    job, made = job_at(tmp_path, window_s=window_s), Writer(tmp_path)
    made.add(0, 1, 2, upto=1)
    assert run(job, until_ms=4 * LENGTH_MS).committed_watermark == 3
    made.add(2, 3)  # and no progress is said: the topology that has written them was killed
    assert run(job).batches[:2] == [2, 3]
    assert run(job).batches == []
    made.add(2)
    assert run(job, until_ms=2 * LENGTH_MS).batches == [], "it ends later"
    assert 2 in run(job).batches
    assert run(job).committed_watermark == 3


def test_a_late_file_waits_until_it_is_computed(tmp_path: Path) -> None:
    job, made = job_at(tmp_path), Writer(tmp_path)
    made.add(0, 1, 2, upto=2)
    run(job)
    assert collect(job)["archives"][0]["waiting"]["rows"] == 0
    made.add(1)
    found = collect(job)
    (archive,) = found["archives"]
    assert (archive["waiting"]["batches"], archive["waiting"]["rows"], archive["newest_batch"]) == (1, 1, 2)
    assert (found["next"]["batch"], found["next"]["complete"]) == (1, 1)
    assert run(job).batches == [1]
    assert collect(job)["archives"][0]["waiting"]["rows"] == 0
