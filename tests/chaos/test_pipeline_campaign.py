"""A campaign of faults while batch runs compute views: they are those of a run without faults, or the run says so.

Files fail by number of the call (`faulty_files.c`), requests to a store by name and number (`faulty_store.py`): errors,
lost answers, kill -9 and lack of memory come at steps that a trace of a run without faults has named, never after a
time. `make chaos-pipeline FAULTS=300`, and HERON_CHAOS_SEED=n repeats one.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import figures
import pytest
from batch_disk_faults import DiskFaults
from batch_faults import Faults
from batch_judging import Struck
from batch_program import LIVE_ENV
from batch_scenarios import Server
from batch_server import INLINE
from batch_store_faults import StoreFaults, store_env
from faulty_files import FaultyFiles, compiler_missing

from heronpy.filesystem import files_of
from heronpy.testing.servers import s3_missing, spark_missing
from tests.integration.small_disk import small_disk

FIGURES = os.environ.get("HERON_CHAOS_FIGURES", "")
FAULTS = int(os.environ.get("HERON_PIPELINE_FAULTS", "0"))
SECONDS = float(os.environ.get("HERON_CHAOS_SECONDS", "inf"))
"""The campaign ends earlier after so long."""
STORED = float(os.environ.get("HERON_PIPELINE_STORED", "0.5"))
"""The share of the faults that happen to runs whose files are in S3."""
MASTER = os.environ.get("HERON_PIPELINE_MASTER", "local[2,2]")
"""`inline`: without Spark, and all in S3; so there are many more in the same time."""
DISK_MB = 96


class Campaign:
    """Faults on batch runs, one after the other."""

    def __init__(self, directory: Path, seed: int, stored: float) -> None:
        self.disk, self.dice, self.seed, self.stored = directory, random.Random(seed), seed, stored
        tools = directory / "layer"
        tools.mkdir()
        layer = FaultyFiles(tools)
        self.server = Server(store_env() if MASTER == INLINE else {**layer.env, **store_env()}, MASTER)
        self.faults: dict[bool, Faults] = {}
        self.struck: list[Struck] = []
        if stored < 1:
            self.faults[False] = DiskFaults(directory, self.dice, self.server, layer)
        if stored > 0:
            self.faults[True] = StoreFaults(directory, self.dice, self.server, MASTER)

    def close(self) -> None:
        self.server.stop()
        for faults in self.faults.values():
            faults.close()

    def strike(self, number: int) -> Struck:
        """One fault, and what was made of it."""
        faults = self.faults[self.dice.random() < self.stored]
        began_s = time.monotonic()
        struck, work = faults.strike(number)
        struck.seconds = round(time.monotonic() - began_s, 1)
        if struck.wrong:
            kept = Path(os.environ.get("HERON_CHAOS_KEEP", self.disk)) / f"wrong-{self.seed}-{number}"
            faults.place.keep(work, kept)
        files_of(work).delete_folder(work)
        self.struck.append(struck)
        line = f" ({struck.line[:160]})" if struck.line else ""
        print(
            f"{time.strftime('%H:%M:%S')} fault {number}: {struck.kind} [{struck.scenario}] {struck.step}: "
            f"{struck.outcome}{line}{f' WRONG: {struck.wrong}' if struck.wrong else ''}",
            flush=True,
        )
        figures.append(FIGURES, seed=self.seed, number=number, **asdict(struck))
        return struck


def table(struck: list[Struck]) -> Iterator[str]:
    """A Markdown table by kind of fault."""
    yield "| fault | number | exact at once | said so | reruns | wrong |"
    yield "|---|---|---|---|---|---|"
    reached = [one for one in struck if one.outcome != "not reached"]
    for kind in [*sorted({one.kind for one in reached}), "all"]:
        of = [one for one in reached if kind in (one.kind, "all")]
        exact, said = (sum(one.outcome == outcome and not one.wrong for one in of) for outcome in ("exact", "said"))
        wrong = sum(bool(one.wrong) for one in of)
        yield f"| {kind} | {len(of)} | {exact} | {said} | {sum(one.reruns for one in of)} | {wrong} |"
    steps = {one.step for one in reached}
    yield f"at {len(steps)} different steps; {len(struck) - len(reached)} more were not reached and count for nothing"


def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: int, within_s: float = math.inf) -> list[Struck]:
    """Strike so often, and print a table; what was wrong."""
    if why := compiler_missing() or spark_missing():
        pytest.skip(why)
    stored = 1.0 if MASTER == INLINE else STORED
    if why := s3_missing():
        print(f"\nnothing in S3: {why}", flush=True)
        stored = 0.0
    seed = int(os.environ.get("HERON_CHAOS_SEED", "1"))
    until_s = time.monotonic() + within_s
    print(f"\nHERON_CHAOS_SEED={seed}", flush=True)
    for name, value in {**store_env(), LIVE_ENV: str(tmp_path / "live")}.items():
        monkeypatch.setenv(name, value)
    with small_disk(tmp_path / "disk", DISK_MB) as disk:
        campaign = Campaign(disk, seed, stored)
        reached = 0
        try:
            for number in itertools.count(1):
                if reached == faults or time.monotonic() > until_s:
                    break
                reached += campaign.strike(number).outcome != "not reached"
        finally:
            campaign.close()
            print("\n".join(table(campaign.struck)), flush=True)
    return [one for one in campaign.struck if one.wrong]


@pytest.mark.skipif(FAULTS == 0, reason="only with HERON_PIPELINE_FAULTS: make chaos-pipeline")
@pytest.mark.timeout(0)
def test_after_a_fault_the_views_are_those_of_a_run_without_it_or_the_run_has_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong(tmp_path, monkeypatch, FAULTS, SECONDS) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("master", [MASTER, INLINE])
def test_some_faults_of_a_batch_run_leave_no_wrong_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    if master == INLINE and (why := s3_missing()):
        pytest.skip(why)
    monkeypatch.setattr(f"{__name__}.MASTER", master)
    assert wrong(tmp_path, monkeypatch, 8) == []
