"""A batch run in a store that fails at any of its calls: it is exact or has failed, and the next run makes it exact."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from batch_judging import difference
from batch_program import LIVE_ENV, Found, archive, events, found, job_at, litter
from inline_spark import inline_session
from store_model import FAULTS, Driver, Killed, Objects

from heronpy.errors import HeronError
from heronpy.filesystem import UrlPath
from heronpy.pipeline import RunReport, compaction, run, running

CASES = int(os.environ.get("HERON_STORE_CASES", "10"))
"""So many faults in each world."""
LENGTH_S, BATCHES = 10.0, 3
_NUMBERS = itertools.count()


class World:
    """An archive in a store, what a run without faults makes of it, and by which calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, late: bool, compact: bool) -> None:
        self._drivers: dict[str, Driver] = {}
        self.compact = compact
        monkeypatch.setattr("heronpy.checkpoints.open_storage", self._drivers.__getitem__)
        self.start = Objects()
        commits = [events(commit, LENGTH_S, BATCHES)[:60] for commit in range(3)]
        for commit in commits[:2]:
            archive(self._place(Driver(self.start)), commit, LENGTH_S)
        if late:
            self.run(Driver(self.start))
        archive(self._place(Driver(self.start)), commits[2], LENGTH_S)
        self.before = self.found(self.start)
        whole = Driver(self.start.copied())
        self.run(whole)
        self.calls = whole.calls
        self.after = self.found(whole.objects)

    def _place(self, driver: Driver) -> UrlPath:
        url = f"s3://model/x?driver={os.getpid()}-{next(_NUMBERS)}"
        self._drivers[url] = driver
        return UrlPath(url, "job")

    def run(self, driver: Driver, *, compact: bool = True) -> RunReport:
        job = job_at(self._place(driver), LENGTH_S)
        if self.compact and compact:
            compaction.compact(job, min_files=2, keep_replaced_s=0)
        return run(job, until_ms=round(1000 * LENGTH_S * BATCHES))

    def found(self, objects: Objects) -> Found:
        return found(self._place(Driver(objects)), LENGTH_S)

    def strike(self, at: int, fault: str, repeat: int) -> str:
        """What is wrong with how a run meets a fault; empty: nothing."""
        objects, wrong = self.start.copied(), list[str]()

        def overtake() -> None:
            for name in [name for name in objects.contents if ".lock/" in name]:
                del objects.contents[name]  # as if so much time had passed
            self.run(Driver(objects))
            wrong.append(difference(self.after, self.found(objects)))

        driver = Driver(objects, at=at, fault=fault, repeat=repeat, overtake=overtake)
        try:
            self.run(driver)
        except (HeronError, Killed) as error:
            done = self.found(objects)["batches"]
            sides = [self.before["batches"], self.after["batches"]]
            wrong += [f"{n}: {type(error)}" for n in done if n >= 0 and done[n] not in [side.get(n) for side in sides]]
        else:
            wrong.append(difference(self.after, self.found(objects)))
        for name in [name for name in objects.contents if ".lock/" in name]:
            del objects.contents[name]  # of a driver that died: it would be known to be dead, in another process
        self.run(Driver(objects), compact=False)
        wrong.append(difference(self.after, self.found(objects)))
        if again := self.run(Driver(objects), compact=False).batches:
            wrong.append(f"there was something left to do: {again}")
        left = litter(self._place(Driver(objects)), LENGTH_S)
        return "; ".join(filter(None, [*wrong, *left[:1]]))


@pytest.fixture(params=["nothing is done", "late files", "files are merged"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv(LIVE_ENV, str(tmp_path))
    for module in (running, compaction):
        monkeypatch.setattr(module, "spark_session", inline_session)
    return World(monkeypatch, late=request.param == "late files", compact=request.param == "files are merged")


def struck(world: World, cases: Iterator[tuple[int, str, int]]) -> list[str]:
    made: Counter[str] = Counter()
    wrong = []
    for at, fault, repeat in cases:
        what = world.strike(at, fault, repeat)
        made[fault] += 1
        if what:
            wrong.append(f"{fault} x {repeat} at {at} ({world.calls[at - 1]}): {what}")
            print("WRONG", wrong[-1], flush=True)
    print(f"\n{len(world.calls)} calls, {sum(made.values())} faults, {len(wrong)} wrong: {dict(made)}", flush=True)
    return wrong


def drawn(world: World, seed: int, count: int) -> Iterator[tuple[int, str, int]]:
    dice = random.Random(seed)
    for _ in range(count):
        fault = dice.choice(FAULTS)
        yield dice.randint(1, len(world.calls)), fault, dice.choice([1, 2, 1000]) if "refused" in fault else 1


@pytest.mark.long
@pytest.mark.timeout(0)
def test_whatever_call_meets_a_fault_nothing_is_wrong(world: World) -> None:
    seed = int(os.environ.get("HERON_CHAOS_SEED", "1"))
    assert struck(world, drawn(world, seed, CASES)) == []
