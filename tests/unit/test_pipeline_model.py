"""Batch runs that are killed at any operation, beside readers, compactions and late rows: all rows get into views."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import ArchiveWriter, dead_letter_counts
from heronpy.connectors import ListSource
from heronpy.errors import HeronError, UserCodeError
from heronpy.filesystem import Location, UrlPath
from heronpy.pipeline import Job, Manifest, ViewReader, exchange, rollup, running
from heronpy.pipeline import manifest as manifests
from heronpy.pipeline.compaction import compact
from heronpy.pipeline.computing import compute
from heronpy.pipeline.look import look
from heronpy.pipeline.partials import PartialsTask
from heronpy.pipeline.vacuum import vacuum
from heronpy.streamlet import Builder, Config, Max
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import LENGTH_MS, Killed, MemoryStore, Operations, World, model

SEEDS = 200 if os.environ.get("HERON_LONG") == "1" else 1
FIRST_SEED = int(os.environ.get("HERON_MODEL_SEED", "0"))
_PLACES = itertools.count()


class Campaign:
    """A world in which one thing after the other happens."""

    def __init__(self, world: World, operations: Operations, chance: random.Random) -> None:
        self.world, self.operations, self.chance = world, operations, chance
        self.history: dict[str, dict[int, list[Counter[Any]]]] = defaultdict(lambda: defaultdict(list))
        self.most = 60
        self.log: list[str] = []

    def note(self) -> None:
        """Remember what all rows make now."""
        for view, batches in self.world.expected().items():
            for batch, rows in batches.items():
                self.history[view][batch].append(rows)

    def new(self) -> None:
        world, chance = self.world, self.chance
        upto = world.upto + chance.randrange(1, 6)
        batches = [n for n in range(world.upto + 1, upto + 1) if chance.random() < 0.9]
        world.write(*batches, archive=chance.randrange(world.archives), upto=upto)

    def late(self) -> None:
        world, chance = self.world, self.chance
        oldest = chance.random() < 0.5
        batches = [chance.randrange(-3, 3 if oldest else world.upto + 3) for _ in range(chance.randrange(1, 3))]
        if chance.random() < 0.1:
            batches.append(10**8 + chance.randrange(3))
        world.write(*batches, archive=chance.randrange(world.archives), count=chance.randrange(1, 4))

    def other_views(self) -> None:
        self.world.views = self.chance.choice([["counts"], ["counts", "again"]])

    def other_program(self) -> None:
        world, chance = self.world, self.chance
        what = chance.randrange(3)
        if what == 0:
            world.windows = not world.windows
        elif what == 1:
            world.reduced = not world.reduced
        else:
            world.behind = chance.choice(["", "nested", "union", "both"])

    def compact(self) -> None:
        compact(self.world.job, min_files=2, keep_replaced_s=self.chance.choice([0, 0, 600]))

    def vacuum(self) -> None:
        vacuum(self.world.job)

    def run(self) -> None:
        chance = self.chance
        kind = chance.choice(["", "", "everything", "until", "batches"])
        options: dict[str, Any] = {}
        if kind == "everything":
            options["everything"] = True
        elif kind == "until":
            options["until_ms"] = chance.randrange(self.world.upto + 2) * LENGTH_MS
        elif kind == "batches":
            options["batches"] = [chance.randrange(-2, self.world.upto + 2) for _ in range(3)]
        self.log.append(str(options))
        self.world.run(**options)
        if kind in ("", "everything"):
            self.world.check()

    def step(self) -> None:
        choices = (self.new, self.late, self.other_views, self.other_program, self.compact, self.vacuum, self.run)
        (action,) = self.chance.choices(choices, (3, 4, 0.5, 1, 1, 0.5, 6))
        self.log.append(action.__name__)
        if action in (self.new, self.late, self.other_views, self.other_program):
            action()
            self.note()
        else:
            self.disturb(action)

    def disturb(self, action: Callable[[], None]) -> None:
        """Do it while somebody reads; or it is killed."""
        kill_at = self.chance.randrange(self.most) if self.chance.random() < 0.7 else None
        self.log.append(f"kill at {kill_at}")
        read = (lambda: self.read(0.1)) if self.chance.random() < 0.3 else None
        try:
            with self.operations.watched(kill_at, read):
                action()
        except Killed:
            self.log.append("killed")
        else:
            self.most = max(10, self.operations.count)
        self.read()

    def read(self, share: float = 1.0) -> None:
        if self.chance.random() < share:
            self.world.check_read(self.history)
            look(self.world.job, 0)


@pytest.fixture(params=["directory", "store", "archive in a store", "views in a store"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Operations, Location | None]:
    """The job's directory, and where its archives are if not there."""
    operations = model(monkeypatch)
    if request.param == "directory":
        return tmp_path, operations, None
    stored = store(monkeypatch, operations)
    if request.param == "archive in a store":
        return tmp_path, operations, stored / "archives"
    return stored, operations, None if request.param == "store" else tmp_path / "archives"


def store(monkeypatch: pytest.MonkeyPatch, operations: Operations) -> Location:
    storage = MemoryStore(operations)  # it knows no times: all is as old as can be
    monkeypatch.setattr("heronpy.pipeline.intents._KEPT_S", float("inf"))
    monkeypatch.setattr("heronpy.checkpoints.open_storage", lambda url: storage)
    return UrlPath(f"hdfs://model-{os.getpid()}-{next(_PLACES)}/x", "job")


def small(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Few batches are many in all respects."""
    monkeypatch.setattr("heronpy.pipeline._history.SEGMENT_BATCHES", chance.choice([2, 5]))
    monkeypatch.setattr(manifests, "_KEPT", chance.choice([1, 3, 32]))
    monkeypatch.setattr(rollup, "TIER_BATCHES", chance.choice([2, 4]))
    monkeypatch.setattr("heronpy.pipeline.kept.TIER_BATCHES", rollup.TIER_BATCHES)
    monkeypatch.setattr(rollup, "TIER_TIERS", 2)
    monkeypatch.setattr(rollup, "_EMPTY", chance.choice([1, 2]))
    monkeypatch.setattr(exchange, "PART_BYTES", chance.choice([5_000, exchange.PART_BYTES]))
    group_bytes = chance.choice([1, 30_000, 2**30])
    monkeypatch.setattr(running, "_GROUP_BYTES", group_bytes)
    monkeypatch.setattr(running, "_CORE_BYTES", 0)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_killed_at_any_operation_runs_come_to_what_all_rows_make(
    place: tuple[Any, Operations, Location | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    small(monkeypatch, chance)
    live = None if isinstance(place[0], Path) else tmp_path / "live"
    windows, archives, reduced = chance.random() < 0.5, chance.choice([1, 1, 2]), chance.random() < 0.5
    first = chance.randrange(LENGTH_MS)
    behind, keys = chance.choice(["", "", "", "nested", "union", "both"]), chance.choice([3, 3, 50])
    world = World(
        place[0],
        archives=archives,
        windows=windows,
        reduced=reduced,
        behind=behind,
        live=live,
        first=first,
        keys=keys,
        slide_ms=chance.choice([0, 0, 5_000]),
        archives_in=place[2],
    )
    campaign = Campaign(world, place[1], chance)
    try:
        for _ in range(12 if SEEDS < 10 else 40):
            campaign.step()
        campaign.new()
        world.run()
        world.check()
        world.check_settled()
    except BaseException:
        print("\n".join(campaign.log))
        raise


def test_a_new_view_is_computed_of_all_batches_though_a_run_did_not_reach_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = World(tmp_path)
    world.views = ["counts"]
    world.write(*range(8), upto=7)
    world.run()
    world.views.append("again")
    assert world.run(until_ms=3 * LENGTH_MS).batches == [0, 1, 2]
    assert world.run().batches == [3, 4, 5, 6, 7]
    world.check()
    world.check_settled()


def test_batches_whose_rows_are_lost_lack_a_new_view_and_later_runs_do_not_look_at_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = World(tmp_path)
    world.views = ["counts"]
    world.write(*range(8), upto=7)
    world.run()
    archive, away = tmp_path / "archive" / "events0", tmp_path / "away"
    away.mkdir()
    for n in range(4):
        (archive / f"batch={n}").rename(away / f"batch={n}")
    world.views.append("again")
    assert world.run().batches == [4, 5, 6, 7]
    assert Manifest.load(tmp_path).todo == []
    world.write(8, upto=8)
    assert world.run().batches == [8]
    for n in range(4):
        (away / f"batch={n}").rename(archive / f"batch={n}")
    found: list[int] = []
    for _ in range(20):  # some in each turn
        found += world.run().batches
    assert sorted(found) == [0, 1, 2, 3]
    world.check()
    world.check_settled()


def test_a_note_that_could_not_be_removed_takes_no_tier_away_that_others_are_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    monkeypatch.setattr(rollup, "TIER_BATCHES", 2)
    monkeypatch.setattr(rollup, "TIER_TIERS", 2)
    world = World(tmp_path)
    world.write(*range(9), upto=8)
    with monkeypatch.context() as patched:
        patched.setattr(rollup, "settle", lambda note: None)
        world.run()
    world.run()
    world.write(3)
    world.run()
    world.check()
    world.check_settled()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_of_two_runs_in_a_store_at_once_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance, operations = random.Random(seed), model(monkeypatch)
    small(monkeypatch, chance)
    place, live = store(monkeypatch, operations), tmp_path / "live"
    windows, reduced, first = chance.random() < 0.5, chance.random() < 0.5, chance.randrange(LENGTH_MS)
    world = World(place, windows=windows, reduced=reduced, live=live, first=first)
    world.write(*range(6), upto=5)
    world.run()
    world.write(2, 6, 7, upto=7)
    strike_at = chance.randrange(60)

    def strike() -> None:
        if operations.count == strike_at:
            if chance.random() < 0.7:
                world.write(chance.randrange(8), 8, upto=8)
            with monkeypatch.context() as patched:
                patched.setattr("heronpy.pipeline._manifest_log._LEASE_S", 0.0)  # its host sleeps, or cannot reach it
                chance.choice([world.run, world.run, functools.partial(vacuum, world.job)])()

    with (
        operations.watched(before=strike),
        contextlib.suppress(HeronError),
    ):  # fenced, or files of what it knew are gone
        world.run()
    world.run()
    world.check()
    world.check_settled()


def test_a_reduction_over_everything_reads_what_is_new_and_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    read: list[tuple[set[int], int]] = []

    def watched(sc: Any, job: Any, plan: Any, archives: Any, readings: Any, batches: Any, **more: Any) -> Any:
        kept = [task for task in readings if isinstance(task, PartialsTask)]
        listed = {batch for one in archives for batch in one.files if batch in batches}
        read.append((listed, len({path for task in kept for path in task.files})))
        return compute(sc, job, plan, archives, readings, batches, **more)

    monkeypatch.setattr(running, "compute", watched)
    world = World(tmp_path, reduced=True)
    world.views = []
    for batch in range(0, 120, 3):
        world.write(batch, batch + 1, batch + 2, upto=batch + 2)
        world.run()
        (batches, files), read[:] = read[0], []
        # The results of a reduction go into a window that reaches back over two batches.
        assert batches == {n for n in range(batch - 2, batch + 3) if n >= 0}
        assert files <= 3 * (16 + 2 * 4)
    world.check()
    world.write(100)
    assert world.run().batches == list(range(100, 120))
    assert read[0][0] == set(range(98, 103)), "what windows before a reduction reach into, and back to"
    assert read[1][0] == set(), "later batches are computed from what was kept"
    world.check()
    world.check_settled()


@pytest.mark.parametrize("reduced", [False, True])
def test_a_view_that_comes_later_is_there_although_a_batch_without_input_was_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    model(monkeypatch)
    world = World(tmp_path)
    world.views = ["counts"]
    world.write(*range(4), upto=3)
    world.run()
    world.run(batches=[-1])
    world.views.append("again")
    world.reduced = reduced
    world.run()
    world.check()
    world.check_settled()


def test_a_history_of_which_nothing_was_kept_is_computed_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = World(tmp_path, reduced=True)
    world.write(*range(12), upto=11)
    with monkeypatch.context() as patched:
        patched.setattr("heronpy.pipeline.plan._keep", lambda *_: None)
        patched.setattr(running, "_GROUP_BYTES", 2**40)
        world.run()
    world.write(12, upto=12)
    assert world.run().batches == list(range(13))
    world.write(13, upto=13)
    assert world.run().batches == [13]
    world.check()
    world.check_settled()


@pytest.mark.parametrize("reduced", [False, True])
def test_a_batch_that_only_windows_reach_into_is_computed_once_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    model(monkeypatch)
    world = World(tmp_path, windows=True, reduced=reduced)
    world.views = []
    world.write(0, 1, count=4, upto=1)
    assert world.run().batches == [0, 1]
    world.write(3, upto=3)
    assert world.run().batches == [2, 3]  # of the second, a window ends in the third, which has no rows of its own
    world.check()
    world.write(upto=5)
    assert world.run().batches == [4, 5]
    world.check()
    world.check_settled()


@pytest.mark.parametrize("reduced", [False, True])
def test_longer_windows_reach_into_batches_that_the_former_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    model(monkeypatch)
    world = World(tmp_path, windows=True, reduced=reduced)
    world.write(0, count=4, upto=6)
    assert world.run().batches == [0, 1, 2]
    monkeypatch.setattr("tests.unit.pipeline_model.WINDOW_MS", 30_000)
    assert world.run().batches == [0, 1, 2, 3]
    world.check()


@pytest.mark.parametrize("reduced", [False, True])
def test_windows_that_come_later_reach_into_batches_that_are_complete_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    model(monkeypatch)
    world = World(tmp_path, reduced=reduced, slide_ms=5_000)
    world.write(0, 1, 3, count=4, upto=3)
    world.run()
    world.windows = True
    assert world.run().batches == [0, 1, 2, 3]
    world.write(6, upto=6)
    world.run()
    world.check()
    world.check_settled()


def test_batches_after_a_late_one_are_computed_though_a_run_was_not_to_go_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = World(tmp_path, reduced=True)
    world.views = []
    world.write(*range(8), upto=7)
    world.run()
    world.write(1)
    assert world.run(until_ms=3 * LENGTH_MS).batches == [1, 2]
    assert world.run(until_ms=4 * LENGTH_MS).batches == [3]
    assert world.run().batches == [4, 5, 6, 7]
    world.check()
    world.check_settled()


def test_a_value_that_a_reduction_does_not_take_is_set_aside_once_and_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    monkeypatch.setattr(rollup, "TIER_BATCHES", 2)
    builder, config = Builder(), Config()
    lines = builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name="lines")
    lines.map(lambda text: ("all", text if text == "odd" else 1)).reduce_by_key(lambda a, b: a + b).to_store("v", Max())
    config.set_pipeline(tmp_path, batch_length=LENGTH_MS // 1000)
    job = Job.of(Program("odd", config, builder.graph))
    folder = tmp_path / "archive" / "lines"
    with contextlib.closing(
        ArchiveWriter(folder, task="0", batch_length_ms=LENGTH_MS, codec="columns", dead_letter=print, run="r")
    ) as writer:
        for batch in range(12):
            for n in range(1 if batch == 7 else 30):
                writer.add(f"{batch}-{n}", batch * LENGTH_MS + n, "odd" if batch == 7 else "x")
            writer.commit()
            writer.progress((batch + 1) * LENGTH_MS)
            if batch == 7:
                with pytest.raises(UserCodeError, match="raised for 1 of 1 elements"):
                    running.run(job, master="local[2]")
            else:
                running.run(job, master="local[2]")
    assert sum(dead_letter_counts(tmp_path).values()) == 1
    with contextlib.closing(ViewReader(tmp_path, "v", Max())) as reader:
        assert dict(reader.items(6)) == {"all": 210}
        assert dict(reader.items(7)) == {}
        assert dict(reader.items(11)) == {"all": 330}
