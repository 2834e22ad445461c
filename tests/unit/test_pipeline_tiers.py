"""Which batches become tiers, and that each batch is read once, as it is."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyspark", reason="roll-ups are Spark's")

from heronpy.pipeline import rollup
from heronpy.pipeline.manifest import CHILDREN, Batch, Manifest, Parts, Tier
from heronpy.pipeline.rollup import plan_merges

VIEW = "counts"


class History:
    """A view whose tiers are made on paper."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest = Manifest(10_000)
        self.made_of: dict[str, set[tuple[int, str]]] = {}
        """Batches and versions of each tier."""
        self._numbers = itertools.count()

    def put(self, *batches: int, rows: int = 1) -> None:
        for batch in batches:
            self.manifest.batches[batch] = Batch(f"v{next(self._numbers)}", "", views={VIEW: Parts(rows, [rows])})
        upto = max(*batches, self.manifest.committed_watermark or 0, 0)
        self.manifest.committed_watermark = upto
        self.manifest.save(self.directory)

    def roll_up(self, *, by_window: bool = False) -> int:
        """How many tiers that makes."""
        made = 0
        while merges := plan_merges(self.manifest, VIEW, by_window=by_window):
            tiers = []
            for merge in merges:
                version = f"t{next(self._numbers)}"
                self.made_of[version] = {(n, batch.version) for n, batch in merge.batches}.union(
                    *(self.made_of[tier.version] for tier in merge.tiers)
                )
                folder = self.directory / "views" / VIEW / "base" / version
                folder.mkdir(parents=True)
                if merge.tiers:
                    (folder / CHILDREN).write_bytes(msgspec.json.encode(merge.tiers))
                rows = sum(t.parts.rows for t in merge.tiers) + sum(b.views[VIEW].rows for _, b in merge.batches)
                tiers.append(Tier(version, merge.after, merge.upto, merge.level, Parts(rows, [rows])))
            gone = {tier.version for merge in merges for tier in merge.tiers}
            kept = [tier for tier in self.manifest.tiers.get(VIEW, ()) if tier.version not in gone]
            self.manifest.tiers[VIEW] = sorted([*kept, *tiers], key=lambda tier: tier.upto)
            self.manifest.save(self.directory)
            made += len(merges)
        return made

    def check(self, upto: int | None = None, first: int | None = None) -> int:
        """Every batch is read once, in its version; how many files that takes."""
        tiers, batches = self.manifest.read_plan(VIEW, upto, self.directory, first=first)
        read = [(n, batch.version) for n, batch in batches]
        for tier in tiers:
            read += self.made_of[tier.version]
        exact = [(n, b.version) for n, b in self.manifest.batches.between(first, upto)]
        assert sorted(read) == sorted(exact)
        return len(tiers) + len(batches)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_a_read_takes_some_files_for_each_level_however_long_the_history(history: History) -> None:
    most = {}
    for batch in range(0, 1200, 8):
        history.put(*range(batch, batch + 8))
        history.roll_up()
        most[batch] = history.check()
    assert max(files for batch, files in most.items() if batch > 600) <= 16 + 3 * 4
    assert [tier.level for tier in history.manifest.tiers[VIEW]] == sorted(
        (tier.level for tier in history.manifest.tiers[VIEW]), reverse=True
    )


@pytest.mark.parametrize("every", [0, 100], ids=["none", "few"])
def test_a_view_with_rows_in_few_batches_is_not_looked_for_in_all_of_them(history: History, every: int) -> None:
    most = 0
    for batch in range(0, 5000, 50):
        history.put(*range(batch, batch + 50), rows=0)
        if every and batch % every == 0:
            history.put(batch, rows=1)
        history.roll_up()
        most = max(most, history.check())
    assert most <= 16 * 16 + 50 + 3 * 4
    history.put(777, rows=1)
    history.roll_up()
    assert history.check() <= 16 * 16 + 50 + 3 * 4


def test_a_read_up_to_a_batch_inside_of_tiers_takes_some_files_of_each_level(history: History) -> None:
    _fill(history)
    for upto in (0, 15, 16, 17, 500, 777, 1000):
        assert history.check(upto) <= 16 + 4 * 4


def test_a_read_from_one_batch_to_another_takes_some_files_of_each_level(history: History) -> None:
    _fill(history)
    for first, upto in ((0, 15), (1, 15), (16, 47), (17, 900), (500, 500), (3, 1000)):
        assert history.check(upto, first) <= 2 * (16 + 4 * 4)


def test_of_batches_before_a_tier_as_many_tiers_are_made_as_there_are_batches_for(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "TIER_BATCHES", 2)
    monkeypatch.setattr(rollup, "_EMPTY", 2)
    for batch in range(15):  # each three of them are more than make a tier, and the last three end before the next one
        history.put(batch, rows=int(batch % 3 > 0))
    history.put(*range(15, 19))
    later = Tier("later", 14, 18, 1)
    history.made_of["later"] = {(n, history.manifest.batches[n].version) for n in range(15, 19)}
    history.manifest.tiers[VIEW] = [later]
    assert all(merge.batches for merge in plan_merges(history.manifest, VIEW))
    history.roll_up()
    history.check()
    tiers = history.manifest.tiers[VIEW]
    assert [tier.after for tier in tiers] == [None, *(tier.upto for tier in tiers[:-1])]


def test_a_batch_of_which_another_view_is_replaced_stays_in_the_tiers_of_this_one(history: History) -> None:
    _fill(history)
    before = list(history.manifest.tiers[VIEW])
    done = history.manifest.batches[500]
    other = {**done.views, "other": Parts(1, [1], version="v-new")}
    history.manifest.batches[500] = replace(done, views=other)
    history.manifest.save(history.directory)
    assert history.manifest.tiers[VIEW] == before
    history.check()


def test_after_a_late_file_one_tier_of_each_level_is_made_again(history: History) -> None:
    _fill(history)
    for batch in (0, 500, 777):
        history.put(batch)
        history.check()
        assert history.roll_up() <= 4
        assert history.check() <= 16 + 3 * 4


def _fill(history: History) -> None:
    for batch in range(0, 1032, 24):
        history.put(*range(batch, batch + 24))
        history.roll_up()


def test_many_batches_at_once_become_tiers_at_once(history: History) -> None:
    history.put(*range(5000))
    assert history.roll_up() < 5000 / 16 / 3
    assert history.check() <= 16 + 3 * 6
    history.put(17)
    history.check()
    history.roll_up()
    assert history.check() <= 16 + 3 * 6


@pytest.mark.parametrize("seed", range(4))
def test_batches_that_come_in_any_order_are_read_once(history: History, seed: int) -> None:
    chance = random.Random(seed)
    upto = 0
    for _ in range(60):
        upto += chance.randrange(40)
        history.put(
            *{upto, *(chance.randrange(-20, upto + 1) for _ in range(chance.randrange(6)))}, rows=chance.randrange(2)
        )
        if chance.random() < 0.7:
            history.roll_up()
        history.check()
        history.check(chance.randrange(upto + 1))
    assert history.check() <= 16 * 2 + 3 * 5 + 60


def test_tiers_that_cannot_be_taken_apart_are_made_again_of_batches(history: History) -> None:
    _fill(history)
    for path in history.directory.glob(f"views/{VIEW}/base/*/{CHILDREN}"):
        path.unlink()
    history.put(3)
    history.check()
    history.roll_up()
    assert history.check() <= 16 + 3 * 4


def test_a_tier_of_tiers_is_never_of_the_first_level_whose_parts_nobody_looks_for(history: History) -> None:
    history.manifest.committed_watermark = 65
    history.manifest.tiers[VIEW] = [Tier(f"t{n}", n - 1 if n else None, n, (1, 1, 2)[n % 3]) for n in range(66)]
    (merge,) = plan_merges(history.manifest, VIEW)
    assert (len(merge.tiers), merge.level) == (2, 2)


def test_a_late_file_writes_no_large_tier_of_a_view_by_window_again(history: History) -> None:
    rows = 2 * rollup.WINDOW_ROWS // (rollup.TIER_BATCHES * rollup.TIER_TIERS**2)
    for batch in range(0, 1600, 8):
        history.put(*range(batch, batch + 8), rows=rows)
        history.roll_up(by_window=True)
    tiers = history.manifest.tiers[VIEW]
    assert max(tier.level for tier in tiers) == rollup.WINDOW_LEVEL
    history.put(10, rows=rows)
    assert history.roll_up(by_window=True) <= rollup.WINDOW_LEVEL
    history.check()


def test_of_a_view_by_window_that_comes_in_any_order_small_tiers_do_not_become_many(history: History) -> None:
    batches = list(range(3000))
    random.Random(1).shuffle(batches)
    for i in range(0, len(batches), 50):
        history.put(*batches[i : i + 50], rows=10_000)
        history.roll_up(by_window=True)
    history.check()
    assert sum(tier.level < rollup.WINDOW_LEVEL for tier in history.manifest.tiers[VIEW]) <= rollup._TIERS_MAX
