"""What a run reads and writes for a late file: its batch, what its windows reach into, and results that are others."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import ArchiveWriter, dead_letter_counts
from heronpy.connectors import JsonLinesSink, ListSource
from heronpy.errors import DamagedInputError
from heronpy.filesystem import Location
from heronpy.pipeline import Job, Manifest, RunReport, ViewReader, carrying, exchange, inputs, plan, rollup, running
from heronpy.pipeline import manifest as manifests
from heronpy.pipeline.computing import compute
from heronpy.pipeline.partials import PartialsTask
from heronpy.streamlet import Builder, Config, Max, Streamlet, WindowConfig
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import LENGTH_MS, World, model

BATCHES = 100
LATE = 10


class Work:
    """What runs read and write."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.read: set[int] = set()
        """Batches whose elements were read."""
        self.listed: set[int] = set()
        """Batches of archives that were listed."""
        self.kept: set[Location] = set()
        """Files of what reductions have kept that were read."""
        self.jobs = 0
        self.tiers: list[str] = []
        """Views of the tiers that were made."""

        def watched(sc: Any, job: Any, plan: Any, archives: Any, readings: Any, batches: Any, **more: Any) -> Any:
            self.jobs += 1
            self.read |= {batch for one in archives for batch in one.files if batch in batches}
            self.kept |= {path for task in readings if isinstance(task, PartialsTask) for _, path in task.files}
            return compute(sc, job, plan, archives, readings, batches, **more)

        look_at = inputs.ArchiveInput.look_at

        def looked_at(one: inputs.ArchiveInput, batches: Any) -> None:
            batches = list(batches)
            self.listed |= {*batches}
            look_at(one, batches)

        roll_up = rollup._roll_up

        def rolled(sc: Any, job: Any, manifest: Any, view: str, monoid: Any, merges: Any) -> None:
            self.tiers += [view] * len(merges)
            roll_up(sc, job, manifest, view, monoid, merges)

        patch.setattr(running, "compute", watched)
        patch.setattr(rollup, "_roll_up", rolled)
        patch.setattr(inputs.ArchiveInput, "look_at", looked_at)


def versions(world: World, view: str) -> dict[int, str]:
    """By batch, where its files are."""
    batches = Manifest.load(world.directory).batches.items()
    return {n: done.version_of(done.views[view]) for n, done in batches}


def filled(place: Path, **options: Any) -> World:
    """A world of some hundred batches that are done, two rows in each."""
    world = World(place, **options)
    for first in range(0, BATCHES, 20):
        world.write(*range(first, first + 20), count=2, upto=first + 19)
        world.run()
    return world


def levels(batches: int) -> int:
    """How many tiers a batch is in, at most."""
    return 1 + math.ceil(math.log(batches / rollup.TIER_BATCHES, rollup.TIER_TIERS))


@pytest.mark.parametrize(("windows", "reach"), [(False, 0), (True, 2)])
def test_without_reductions_a_late_file_has_its_batch_computed_and_those_its_windows_reach_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: bool, reach: int
) -> None:
    model(monkeypatch)
    world = filled(tmp_path, windows=windows)
    work = Work(monkeypatch)
    world.write(LATE)
    assert world.run().batches == list(range(LATE, LATE + reach + 1))
    assert work.read == set(range(LATE - reach, LATE + reach + 1))
    assert len(work.tiers) <= 3 * levels(BATCHES)
    world.check()
    world.check_settled()


def test_where_a_late_key_is_in_all_batches_what_is_behind_reductions_is_computed_from_what_they_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = filled(tmp_path, windows=True, reduced=True, keys=2)
    before = {view: versions(world, view) for view in ("counts", "windows", "so-far", "~r", "~ur")}
    work = Work(monkeypatch)
    world.write(LATE)
    report = world.run()
    assert report.batches == list(range(LATE, BATCHES))
    assert report.carried == list(range(LATE + 3, BATCHES))
    assert work.read == set(range(LATE - 2, LATE + 3)), "of windows before a reduction, and none for those behind it"
    # Also some in turn, and those whose windows reach into batches that are not complete.
    assert len(work.listed) < 20
    assert work.jobs == 2
    for view in before:
        changed = {n for n, version in versions(world, view).items() if version != before[view][n]}
        assert changed == ({*report.batches} if view == "so-far" else {LATE, LATE + 1, LATE + 2}), view
    for view in ("counts", "again", "windows", "~r", "~ur"):
        assert work.tiers.count(view) <= levels(BATCHES), view
    world.check()
    world.check_settled()


def test_where_a_late_key_is_in_few_batches_only_those_have_other_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = filled(tmp_path, reduced=True, keys=64)  # two of them in each batch
    before = versions(world, "so-far")
    work = Work(monkeypatch)
    world.write(LATE)
    late_key = next(reversed(world.rows[0].values()))[0]
    having = {time_ms // LENGTH_MS for key, time_ms in world.rows[0].values() if key == late_key} - {LATE}
    report = world.run()
    after = {n for n in having if n > LATE}
    assert after
    # A window reaches over up to two batches, before a reduction or behind it.
    may = {n + i for n in after for i in range(5)} | {LATE, LATE + 1, LATE + 2, LATE + 3, LATE + 4}
    assert after <= {*report.batches} <= may
    assert {*report.carried} == {n for n in report.batches if n > LATE + 2}
    changed = {n for n, version in versions(world, "so-far").items() if version != before[n]}
    assert changed == {*report.batches}
    assert len(work.tiers) <= 7 * levels(BATCHES) * (1 + len(after))
    world.check()
    world.check_settled()


@pytest.mark.parametrize("behind", ["nested", "union", "both"])
def test_reductions_of_reductions_and_of_what_meets_them_are_as_if_computed_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: str
) -> None:
    model(monkeypatch)
    world = World(tmp_path, windows=True, reduced=True, behind=behind)
    for first in range(0, 24, 6):
        world.write(*range(first, first + 6), count=2, upto=first + 5)
        world.run()
    work = Work(monkeypatch)
    world.write(4, 9)
    report = world.run()
    assert report.batches == list(range(4, 24))
    if behind == "nested":
        assert report.carried == [7, 8, *range(12, 24)]
        assert work.jobs == 1
    else:
        assert report.carried == [], "elements of the archive meet results in all of these batches"
    world.check()
    world.check_settled()


def test_a_late_file_for_the_first_batch_of_a_day_reads_few_files_of_what_was_kept_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = filled(tmp_path, reduced=True, keys=1)
    work = Work(monkeypatch)
    world.write(BATCHES - 4)
    world.run()
    assert len(work.kept) < 2 * (rollup.TIER_BATCHES + rollup.TIER_TIERS * levels(BATCHES)) + 2 * 6
    world.check()


def test_a_late_file_beside_new_ones_reads_few_files_of_what_was_kept_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = filled(tmp_path, reduced=True, keys=1000)
    work = Work(monkeypatch)
    world.write(LATE)
    world.write(BATCHES, upto=BATCHES)
    report = world.run()
    # Windows before the second reduction, and behind the first one, reach over three batches.
    assert report.batches == [*range(LATE, LATE + 5), BATCHES]
    assert report.carried == [LATE + 3, LATE + 4]
    assert len(work.kept) < 2 * (rollup.TIER_BATCHES + 2 * rollup.TIER_TIERS * levels(BATCHES)) + 2 * 6
    world.check()
    world.check_settled()


def segments(world: World) -> set[str]:
    """Files of the history."""
    return {segment.name for segment in Manifest.load(world.directory).batches.segments()}


@pytest.mark.parametrize("windows", [False, True])
def test_late_files_with_new_keys_write_little_of_the_history_and_leave_later_batches_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: bool
) -> None:
    model(monkeypatch)
    monkeypatch.setattr("heronpy.pipeline._history.SEGMENT_BATCHES", 8)
    world = filled(tmp_path, windows=windows, reduced=True, keys=10**6)
    read: list[str] = []
    decoded = manifests.decoded

    def noted(data: bytes, segment: Any, where: str) -> Any:
        read.append(segment.name)
        return decoded(data, segment, where)

    for late in (LATE, LATE, LATE + 1, LATE - 3, 0):  # in batches that others follow from, and before those
        before = segments(world)
        world.write(late)
        with monkeypatch.context() as patched:
            patched.setattr(manifests, "decoded", noted)
            read.clear()
            # Windows before a reduction, or behind it, reach over up to two batches.
            assert {*world.run().batches} <= set(range(late, late + 6))
        assert len(segments(world) - before) <= 4
        assert len(set(read)) <= 8 < len(before)
        world.check()
    world.write(BATCHES, upto=BATCHES)
    assert world.run().batches[0] >= BATCHES
    world.check()
    world.check_settled()


def test_late_files_of_some_batches_at_once_with_keys_of_few_others_have_these_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = filled(tmp_path, reduced=True, keys=64)
    for late in ((LATE, LATE, 50), (50, 52, 53), (0, LATE + 1, 90)):
        world.write(*late, count=2)
        assert len(world.run().batches) < BATCHES // 2
        world.check()
    world.check_settled()


@pytest.mark.parametrize("group_bytes", [2**30, 1], ids=["one group", "a group for each batch"])
@pytest.mark.parametrize("again", [True, False], ids=["another late file", "nothing new"])
def test_after_a_run_that_died_between_its_groups_later_batches_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool, group_bytes: int
) -> None:
    model(monkeypatch)
    world = filled(tmp_path, reduced=True, keys=64)
    world.write(LATE)
    group = running._Run._group

    def dies(run: Any, sc: Any, work: Any, chosen: Any, *more: Any, **options: Any) -> bool:
        if work.carried.issuperset(chosen):
            raise KeyboardInterrupt
        return group(run, sc, work, chosen, *more, **options)

    with monkeypatch.context() as patched:
        patched.setattr(running._Run, "_group", dies)
        with pytest.raises(KeyboardInterrupt):
            world.run()
    if again:
        world.write(LATE + 9)
    monkeypatch.setattr(running, "_GROUP_BYTES", group_bytes)
    monkeypatch.setattr(running, "_CORE_BYTES", 0)
    world.run()
    world.check()
    world.check_settled()


def test_a_history_of_an_earlier_version_is_computed_from_its_archive_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    trace = plan._trace

    def earlier(made: plan.BatchPlan) -> None:
        trace(made)
        made.can_carry = False

    world = World(tmp_path, reduced=True)
    world.write(*range(20), upto=19)
    with monkeypatch.context() as patched:
        patched.setattr(plan, "_trace", earlier)
        world.run()
    assert not any(done.direct for done in Manifest.load(tmp_path).batches.values())
    world.write(3)
    report = world.run()
    assert (report.batches, report.carried) == (list(range(3, 20)), [])
    world.write(3)
    report = world.run()
    assert (report.batches, report.carried) == (list(range(3, 20)), list(range(6, 20)))
    world.check()
    world.check_settled()


class Words:
    """A program of user's code, and its archive."""

    def __init__(self, place: Path, define: Callable[[Streamlet], Any]) -> None:
        self._place = place
        self.define(define)
        self._numbers = iter(range(10**6))
        self._writer = ArchiveWriter(
            place / "archive" / "words",
            task="0",
            batch_length_ms=LENGTH_MS,
            codec="columns",
            dead_letter=print,
            run="r",
        )
        self._upto = -1

    def define(self, define: Callable[[Streamlet], Any]) -> None:
        """Go on with another program."""
        builder, config = Builder(), Config()
        define(builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name="words"))
        config.set_pipeline(self._place, batch_length=LENGTH_MS // 1000)
        self.job = Job.of(Program("words", config, builder.graph))

    def write(self, batch: int, *words: str) -> None:
        self._upto = max(self._upto, batch)
        for word in words:
            n = next(self._numbers)
            self._writer.add(f"e{n}", batch * LENGTH_MS + n % LENGTH_MS, word)
        self._writer.commit()
        self._writer.progress((self._upto + 1) * LENGTH_MS)

    def run(self, **options: Any) -> RunReport:
        return running.run(self.job, master="local[2]", **options)

    def view(self, name: str) -> dict[int, dict[Any, Any]]:
        with contextlib.closing(ViewReader(self.job.directory, name, Max())) as reader:
            return {n: dict(reader.items(n)) for n in reader.batches()}


def _parsed(word: str) -> tuple[str, Any]:
    if word == "broken":
        raise ValueError(word)
    key, _, value = word.partition("=")
    return key, int(value) if value.isdigit() else value


def _itself(pair: Any) -> Any:
    return pair


def _plus(a: Any, b: Any) -> Any:
    return a + b


def test_what_a_reduction_refuses_with_a_late_value_is_set_aside_as_if_computed_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    usual = ["x=1"] * 20

    def define(words: Streamlet) -> None:
        words.map(_parsed).reduce_by_key(_plus).set_name("r").map(lambda kv: (kv[0], str(kv[1]))).to_store("v", Max())

    world = Words(tmp_path, define)
    for batch in range(6):
        world.write(batch, *usual, *(["odd=one"] if batch in (3, 5) else []))
        world.run()
    assert world.view("v")[5] == {"x": "120", "odd": "oneone"}
    world.write(1, "odd=7")
    report = world.run()
    assert report.batches == [1, 3, 5], "in the others its key does not occur"
    assert world.view("v")[3] == {"x": "80"}
    assert world.view("v")[5] == {"x": "120"}
    assert dead_letter_counts(tmp_path) == {"r": 2}
    world.write(0, "x=1")
    report = world.run()
    assert {3, 5}.isdisjoint(report.carried), "what was refused is kept nowhere"
    assert world.view("v")[5] == {"x": "121"}
    assert dead_letter_counts(tmp_path) == {"r": 2}
    assert world.run().batches == []


def test_what_is_kept_and_refused_for_late_values_does_not_count_among_the_few_elements_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = Words(tmp_path, lambda words: words.map(_parsed).reduce_by_key(_plus).set_name("r").to_store("v", Max()))
    keys = [f"k{i}" for i in range(5)]
    for batch in range(6):
        world.write(batch, *["x=1"] * (60 if batch == 3 else 15), *(f"{key}=1" for key in keys if batch == 3))
    world.run()
    world.write(1, *(f"{key}=late" for key in keys))
    world.write(6, *["x=1"] * 15)
    assert world.run().batches == [1, 3, 6]
    late = dict.fromkeys(keys, "late")
    assert [world.view("v")[n] for n in (1, 3, 6)] == [{"x": 30, **late}, {"x": 105}, {"x": 150}]
    assert dead_letter_counts(tmp_path) == {"r": 5}
    assert world.run().batches == []


def test_dead_letters_before_a_reduction_stay_where_its_results_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)

    def define(words: Streamlet) -> None:
        so_far = words.map(_parsed).set_name("parsed").reduce_by_key(_plus)
        so_far.to_store("v", Max())
        so_far.to_sink(JsonLinesSink(tmp_path / "live"))

    world = Words(tmp_path, define)
    for batch in range(6):
        world.write(batch, *["x=1"] * 20, "broken")
        world.run()
    files = {path.name for path in (tmp_path / "dead-letter").rglob("*.jsonl")}
    world.write(1, "x=1")
    report = world.run()
    assert (report.batches, report.carried) == ([1, 2, 3, 4, 5], [2, 3, 4, 5])
    assert {n: rows["x"] for n, rows in world.view("v").items()} == {0: 20, 1: 41, 2: 61, 3: 81, 4: 101, 5: 121}
    assert dead_letter_counts(tmp_path) == {"parsed": 6}
    kept = {path.name for path in (tmp_path / "dead-letter").rglob("*.jsonl")} & files
    assert len(kept) == 5, "all but that of the late batch"
    lines = sorted(path.read_text().strip() for path in (tmp_path / "sinks").rglob("*.jsonl"))
    assert lines == sorted(f'["x",{n}]' for n in (20, 41, 61, 81, 101, 121))
    assert world.run().batches == []


def test_a_key_of_many_batches_in_turn_and_of_none_after_them_has_only_those_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = Words(tmp_path, lambda words: words.map(_parsed).reduce_by_key(_plus).to_store("v", Max()))
    for batch in range(BATCHES):
        world.write(batch, "x=1" if batch < 60 else "y=1")
    assert world.run().batches == list(range(BATCHES))
    world.write(BATCHES, "y=1")
    world.write(1, "x=1")
    report = world.run()
    assert {*range(1, 60), BATCHES} <= {*report.batches} <= {*range(1, 60 + rollup.TIER_BATCHES), BATCHES}
    expected = {n: {"x": n + 1 + (n > 0)} if n < 60 else {"y": n - 59} for n in range(BATCHES + 1)}
    assert world.view("v") == expected


def test_late_files_again_and_again_leave_the_number_of_files_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    monkeypatch.setattr(exchange, "PART_BYTES", 1_000)

    def define(words: Streamlet) -> None:
        pairs = words.map(_parsed)
        pairs.to_store("counts", Max())
        so_far = pairs.reduce_by_key(_plus)
        so_far.to_store("v", Max())
        so_far.map(_itself).to_store("w", Max())

    world = Words(tmp_path, define)
    for batch in range(6):
        world.write(batch, *(f"k{i}=1" for i in range(300)))
    world.run()

    def divided() -> dict[int, set[int]]:
        batches = Manifest.load(tmp_path).batches.items()
        return {n: {parts.divided for parts in done.views.values()} for n, done in batches if n > 1}

    before = divided()
    assert min(min(numbers) for numbers in before.values()) > 1
    for _ in range(4):
        world.write(1, "k7=1")
        assert world.run().carried == [2, 3, 4, 5]
    assert divided() == before
    assert world.view("w") == world.view("v")
    assert [world.view("v")[n]["k7"] for n in range(6)] == [1, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("keys", [1, 64])
def test_damage_before_a_late_file_stops_what_is_computed_from_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    model(monkeypatch)
    world = World(tmp_path, reduced=True, keys=keys)
    world.write(*range(12), upto=11)
    world.run()
    world.write(4, 9)
    (path,) = [
        file for file in world.files(4) if file.stat().st_mtime == max(f.stat().st_mtime for f in world.files(4))
    ]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedInputError) as e:
        world.run()
    assert e.value.report.batches == []
    path.write_bytes(whole)
    world.run()
    world.check()
    world.check_settled()


@pytest.mark.parametrize("key", ["x", "y"], ids=["in all batches", "in few"])
@pytest.mark.parametrize("own", [False, True], ids=["of the same reduction", "of one of its own"])
def test_views_that_come_back_have_what_came_late_while_the_program_was_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool, key: str
) -> None:
    model(monkeypatch)
    program = ["v", "w"]

    def define(words: Streamlet) -> None:
        pairs = words.map(_parsed)
        so_far = pairs.reduce_by_key(_plus).set_name("r")
        so_far.to_store("v", Max())
        if "w" in program:
            (pairs.reduce_by_key(_plus).set_name("s") if own else so_far).map(_itself).to_store("w", Max())
            so_far.to_sink(JsonLinesSink(tmp_path / "live"))

    world = Words(tmp_path, define)
    for batch in range(6):
        world.write(batch, "x=1", *(["y=1"] if batch in (1, 4) else []))
    world.run()
    program.remove("w")
    world.define(define)
    world.write(1, f"{key}=5")
    assert len(world.run().carried) == (4 if key == "x" else 1)
    assert world.run().batches == []
    program.append("w")
    world.define(define)
    world.run()
    x, y = (5, 0) if key == "x" else (0, 5)
    expected = {n: {"x": n + 1 + x * (n > 0)} | ({"y": (n + 2) // 3 + y} if n in (1, 4) else {}) for n in range(6)}
    assert (world.view("v"), world.view("w")) == (expected, expected)
    lines = sorted(path.read_text() for path in (tmp_path / "sinks").rglob("*.jsonl"))
    assert sum(text.count("\n") for text in lines) == 8
    assert world.run(everything=True).batches == []


def _hundredfold(pair: tuple[str, int]) -> tuple[str, int]:
    return pair[0], 100 * pair[1]


@pytest.mark.parametrize("first", ["reduced beside it", "reduced before it"])
def test_a_reduction_does_not_go_on_with_what_another_has_kept_that_had_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    model(monkeypatch)
    program = [first]

    def define(words: Streamlet) -> None:
        pairs = words.map(_parsed)
        if program == ["reduced beside it"]:
            pairs.reduce_by_key(_plus).to_store("a", Max())
        elif program:
            pairs = pairs.reduce_by_key(_plus)
        pairs.map(_hundredfold).reduce_by_key(_plus).to_store("b", Max())

    world = Words(tmp_path, define)
    for batch in range(3):
        world.write(batch, "x=1")
    world.run()
    assert world.view("b")[2]["x"] == (300 if first == "reduced beside it" else 600)
    program.clear()
    world.define(define)
    world.write(3, "x=1")
    world.run()
    assert world.view("b")[3]["x"] == 400
    world.write(4, "x=1")
    assert world.run().batches == [4]
    assert world.view("b")[4]["x"] == 500


def _locked(pair: tuple[str, int]) -> tuple[str, Any]:
    return (pair[0], threading.Lock()) if pair[0] == "bad" else pair


def _either(a: Any, b: Any) -> Any:
    return a if isinstance(b, str) else b


def test_results_that_cannot_be_sent_are_set_aside_of_carried_batches_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)

    def define(words: Streamlet) -> None:
        so_far = words.map(_parsed).reduce_by_key(_plus).set_name("r").map(_locked)
        so_far.reduce_by_key(_either).set_name("rr").to_store("v", Max())

    world = Words(tmp_path, define)
    for batch in range(4):
        world.write(batch, *["x=1"] * 30, "bad=1")
    world.run()
    before = dead_letter_counts(tmp_path)
    assert sum(before.values()) == 4
    world.write(0, "x=1")
    assert world.run().batches == [0, 1, 2, 3]
    assert world.view("v")[3] == {"x": 121}
    assert dead_letter_counts(tmp_path) == before
    assert world.run().batches == []


def test_a_value_that_cannot_be_sent_is_set_aside_once_though_its_batch_is_replaced_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    window = WindowConfig(LENGTH_MS // 1000, LENGTH_MS // 1000)

    def define(words: Streamlet) -> None:
        so_far = words.map(_parsed).reduce_by_key(_plus).set_name("r").map(_locked)
        so_far.reduce_by_key_and_window(window, _either).set_name("w").map(_of_window).to_store("v", Max())

    world = Words(tmp_path, define)
    for batch in range(4):
        world.write(batch, *["x=1"] * 30, *(["bad=1"] if batch == 0 else []))
    world.run()
    assert dead_letter_counts(tmp_path) == {"w": 1}
    world.write(0, "x=1")
    assert world.run().carried == [1, 2, 3]
    assert dead_letter_counts(tmp_path) == {"w": 1}


@pytest.mark.parametrize("reduced", [False, True])
def test_values_of_batches_looked_back_at_that_cannot_be_sent_are_no_failure_of_the_batch_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    model(monkeypatch)
    window = WindowConfig(3 * LENGTH_MS // 1000, LENGTH_MS // 1000)

    def define(words: Streamlet) -> None:
        pairs = words.map(_parsed)
        if reduced:
            pairs = pairs.reduce_by_key(_plus).set_name("r")
        joined = pairs.map(_locked).join(pairs.filter(lambda pair: pair[0] == "x"), window, _first).set_name("j")
        joined.map(_of_window).to_store("v", Max())

    world = Words(tmp_path, define)
    for batch in range(6):
        world.write(batch, *["x=1"] * 14, "bad=1")
        assert world.run().batches == [batch]
        assert dead_letter_counts(tmp_path) == {"j": batch + 1}


def _first(a: Any, b: Any) -> Any:
    return a


def test_a_late_file_that_changes_no_value_has_no_batch_after_it_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    monkeypatch.setattr(carrying, "_ROWS_MAX", -1)  # whatever is looked for is taken to be there
    world = Words(tmp_path, lambda words: words.map(_parsed).reduce_by_key(max).to_store("v", Max()))
    for batch in range(6):
        world.write(batch, "x=5")
    world.run()
    world.write(1, "x=3")
    assert world.run().batches == [1]
    assert world.run(everything=True).batches == []
    world.write(1, "x=7")
    assert world.run().batches == [1, 2, 3, 4, 5]
    assert world.view("v")[5] == {"x": 7}


@pytest.mark.parametrize("windows", ["stay", "go"])
def test_batches_that_only_windows_behind_a_reduction_reach_into_follow_a_late_one_after_a_run_with_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: str
) -> None:
    model(monkeypatch)
    window = WindowConfig(3 * LENGTH_MS // 1000, 3 * LENGTH_MS // 1000)
    program = ["v", "w"]

    def define(words: Streamlet) -> None:
        so_far = words.map(_parsed).reduce_by_key(_plus).set_name("r")
        so_far.to_store("v", Max())
        if "w" in program:
            of_windows = so_far.reduce_by_key_and_window(window, max).set_name("rw").map(_of_window)
            of_windows.to_store("w", Max())

    def results(view: str) -> dict[int, int]:
        return {n: rows["x"] for n, rows in world.view(view).items() if rows}

    world = Words(tmp_path, define)
    for batch in (*range(10), 14):  # the window of the ninth ends in the eleventh, which has no element of its own
        world.write(batch, "x=1")
    world.run()
    assert results("w") == {2: 3, 5: 6, 8: 9, 11: 10, 14: 11}
    if windows == "go":
        program.remove("w")
        world.define(define)
        world.run()
    world.write(5, "x=5")
    assert world.run(until_ms=10 * LENGTH_MS).batches == [5, 6, 7, 8, 9]
    world.run()
    assert results("v") == {**{n: n + 1 + 5 * (n > 4) for n in range(10)}, 14: 16}
    if windows == "stay":
        assert results("w") == {2: 3, 5: 11, 8: 14, 11: 15, 14: 16}
    assert world.run(everything=True).batches == []


def test_windows_that_begin_in_one_group_of_later_batches_are_computed_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    monkeypatch.setattr(running, "_GROUP_BYTES", 1)
    monkeypatch.setattr(running, "_CORE_BYTES", 0)
    window = WindowConfig(3 * LENGTH_MS // 1000, 3 * LENGTH_MS // 1000)

    def define(words: Streamlet) -> None:
        so_far = words.map(_parsed).filter(lambda pair: pair[0] == "x").reduce_by_key(_plus).set_name("r")
        so_far.reduce_by_key_and_window(window, max).set_name("rw").map(_of_window).to_store("w", Max())

    world = Words(tmp_path, define)
    for batch in range(12):
        world.write(batch, "y=1", *(["x=1"] if batch in (0, 6) else []))
    world.run()
    world.write(0, "x=5")
    report = world.run()
    assert report.batches == [0, 1, 2, 3, 6, 7, 8, 9]
    assert [world.view("w")[n]["x"] for n in (2, 8)] == [6, 7], "of each window, the result is in its last batch"
    assert world.run(everything=True).batches == []


def _of_window(pair: tuple[Any, int]) -> tuple[str, int]:
    return pair[0].key, pair[1]
