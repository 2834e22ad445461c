"""Late rows of a batch that is done, whose files are damaged meanwhile: they count, or the run says that it failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.connectors import ListSource
from heronpy.errors import DamagedInputError, StateError
from heronpy.pipeline import Job, Manifest, run, states
from heronpy.pipeline.compaction import compact
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program
from tests.chaos.inline_spark import inline_session
from tests.unit.pipeline_model import World, model

BATCHES = 6
LONG = pytest.mark.long


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    model(monkeypatch)


def cut(path: Path) -> None:
    """So that the whole file cannot be read."""
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    """So that a page of it cannot be read."""
    data = bytearray(path.read_bytes())
    data[20] ^= 0xFF
    path.write_bytes(data)


def computed(directory: Path, *, archives: int = 1, windows: bool = False, count: int = 3) -> World:
    world = World(directory, archives=archives, windows=windows)
    for archive in range(archives):
        world.write(*range(BATCHES), archive=archive, count=count, upto=BATCHES - 1)
    world.run()
    world.check()
    return world


@pytest.mark.parametrize(("damage", "late", "which"), [(cut, 1, 0), (flip, 1, 0), pytest.param(cut, 5, -1, marks=LONG)])
def test_late_rows_beside_a_damaged_file_are_refused_until_it_is_put_back(
    tmp_path: Path, damage: Callable[[Path], None], late: int, which: int
) -> None:
    world = computed(tmp_path)
    world.write(2, count=late)
    hurt = world.files(2)[which]
    whole = hurt.read_bytes()
    damage(hurt)
    world.write(BATCHES, upto=BATCHES)
    with pytest.raises(DamagedInputError, match=f"cannot be done: {hurt}") as refusal:
        world.run()
    assert (refusal.value.report.batches, refusal.value.report.blocked) == ([BATCHES], [2])
    world.write(BATCHES + 1, upto=BATCHES + 1)
    with pytest.raises(DamagedInputError, match=f"cannot be done: {hurt}"):
        world.run()
    hurt.write_bytes(whole)
    assert world.run().batches == [2]
    world.check()
    world.check_settled()


@pytest.mark.parametrize(
    ("damage", "accept_damage", "compacted"),
    [(cut, True, True), pytest.param(cut, False, False, marks=LONG), pytest.param(flip, True, False, marks=LONG)],
)
def test_results_stay_when_nothing_has_come_but_damage(
    tmp_path: Path, damage: Callable[[Path], None], accept_damage: bool, compacted: bool
) -> None:
    world = computed(tmp_path, windows=True)
    if compacted:
        world.write(2)
        world.run()
        assert compact(world.job, min_files=2).files_after == 1
        assert compact(world.job, keep_replaced_s=0).removed == 2
        world.run(everything=True)
    (hurt,) = world.files(2)
    damage(hurt)
    for _ in range(2):
        report = world.run(everything=True, accept_damage=accept_damage)
        assert report.batches == []
        if damage is cut:
            assert report.notes == [
                "input of batch 1970-01-01 00:00:20 has been damaged since it was read: their results stay as they are"
            ]
    world.check()


@pytest.mark.parametrize("damage", [cut, pytest.param(flip, marks=LONG)])
def test_what_is_computed_from_late_rows_and_from_what_is_damaged_is_refused(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    world = computed(tmp_path, windows=True)
    (hurt,) = world.files(2)
    whole = hurt.read_bytes()
    damage(hurt)
    world.write(3)
    for _ in range(2):
        with pytest.raises(DamagedInputError, match=f"cannot be done: {hurt}") as refusal:
            world.run()
        assert refusal.value.report.blocked == [3, 4]
    accepted = world.run(accept_damage=True)
    assert accepted.batches == [3, 4]
    assert [note for note in accepted.notes if "without what is damaged" in note and str(hurt) in note]
    assert [n for n, done in Manifest.load(tmp_path).batches.items() if done.damaged] == [3, 4]
    assert world.run().batches == [], "what was accepted stays so"
    hurt.write_bytes(whole)
    assert world.run(everything=True).batches == [3, 4]
    world.check()
    world.check_settled()


@pytest.mark.parametrize(
    ("late", "compacted", "seen"),
    [(5, 0, False), (1, 2, True), pytest.param(1, 0, True, marks=LONG), pytest.param(3, 2, False, marks=LONG)],
)
def test_late_rows_do_not_hide_that_a_file_is_gone(tmp_path: Path, late: int, compacted: int, seen: bool) -> None:
    world = computed(tmp_path, windows=True)
    (gone,) = world.files(2)
    whole = gone.read_bytes()
    gone.unlink()
    if seen:  # and nothing is left of the batch
        report = world.run(everything=True)
        assert report.notes == [
            "the archive has lost rows of batch 1970-01-01 00:00:20: their results stay as they are"
        ]
    world.write(2, count=late)
    for _ in range(compacted):  # merged more than once before a run looks
        world.write(2, count=1)
        assert compact(world.job, min_files=2).files_after == 1
        compact(world.job, keep_replaced_s=0)
    world.write(BATCHES, upto=BATCHES)
    for _ in range(2):
        with pytest.raises(DamagedInputError, match=r"cannot be done: .*/batch=2: 1 of the files .* gone; put back"):
            world.run()
    assert world.run(accept_damage=True).batches == [2, 3, 4]
    done = Manifest.load(tmp_path).batches[2]
    assert done.damaged
    assert done.elements == late + compacted
    assert world.run(everything=True).batches == [], "what was accepted stays so"
    gone.write_bytes(whole)
    assert world.run(everything=True).batches == [2, 3, 4]
    world.check()
    world.check_settled()


def test_files_that_were_merged_more_than_once_between_two_runs_are_not_gone(tmp_path: Path) -> None:
    world = computed(tmp_path)
    for _ in range(3):
        world.write(2, count=1)
        assert compact(world.job, min_files=2).files_after == 1
        compact(world.job, keep_replaced_s=0)
    world.write(2, count=1)
    assert world.run().batches == [2]
    world.check()
    world.check_settled()


def test_late_rows_in_one_archive_beside_damage_in_another_are_refused(tmp_path: Path) -> None:
    world = computed(tmp_path, archives=2)
    (hurt,) = world.files(2, archive=1)
    whole = hurt.read_bytes()
    cut(hurt)
    world.write(2, archive=0)
    for _ in range(2):
        with pytest.raises(DamagedInputError, match=f"cannot be done: {hurt}") as refusal:
            world.run()
        assert refusal.value.report.blocked == [2]
    hurt.write_bytes(whole)
    assert world.run().batches == [2]
    world.check()
    world.check_settled()


def test_who_accepts_damage_beside_late_rows_has_those_and_is_told_so(tmp_path: Path) -> None:
    world = computed(tmp_path)
    world.write(2, count=1)
    hurt, _ = world.files(2)
    whole = hurt.read_bytes()
    cut(hurt)
    report = world.run(accept_damage=True)
    assert report.batches == [2]
    assert "was computed without what is damaged" in report.notes[0]
    assert Manifest.load(tmp_path).batches[2].damaged
    assert sum(world.found("counts")[2].values()) == 1
    assert world.run().batches == []
    hurt.write_bytes(whole)
    assert world.run(everything=True).batches == [2]
    world.check()


def test_rows_that_were_accepted_as_damaged_and_put_back_do_not_hide_behind_other_damage(tmp_path: Path) -> None:
    world = computed(tmp_path)
    world.write(2, count=2)
    old, new = world.files(2)
    whole = new.read_bytes()
    cut(new)
    assert world.run(accept_damage=True).batches == [2]
    new.write_bytes(whole)
    cut(old)
    with pytest.raises(DamagedInputError, match=f"cannot be done: {old}"):
        world.run(everything=True)


@pytest.mark.parametrize("damage", [cut, pytest.param(flip, marks=LONG), pytest.param(Path.unlink, marks=LONG)])
def test_a_topology_does_not_begin_with_less_than_batches_were_computed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    monkeypatch.setattr("heronpy.pipeline._states.spark_session", inline_session)
    world = World(tmp_path)
    builder, config = Builder(), Config()
    words = builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name="events0")
    words.map(lambda word: (word, 1)).reduce_by_key(max).set_name("most").to_store("counts", Sum())
    config.set_pipeline(tmp_path, batch_length=10)
    job = Job.of(Program("model", config, builder.graph))
    world.write(*range(3), upto=2)
    run(job)
    with states(job) as found:
        assert dict(found["most"]) == {f"k{n}": 1 for n in range(3)}
    damage(world.files(1)[0])
    with pytest.raises(StateError, match="the state of reductions cannot be computed"), states(job):
        pass
