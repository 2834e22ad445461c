"""A campaign of faults while batch runs compute views: they are those of a run without faults, or the run says so.

Files fail by number of the call (`faulty_files.c`): errors, short transfers, kill -9 and lack of memory come at steps
that a trace of a run without faults has named, never after a time. `make chaos-pipeline FAULTS=300`, and
HERON_CHAOS_SEED=n repeats one.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import figures
import pytest
from batch_scenarios import Answer, Scenario, Server, scenarios
from faulty_files import DRIVER, FOR_EVER, TASK, FaultyFiles, compiler_missing

from heronpy.errors import HeronError
from heronpy.testing.servers import spark_missing
from tests.integration.small_disk import fill, small_disk

FIGURES = os.environ.get("HERON_CHAOS_FIGURES", "")
FAULTS = int(os.environ.get("HERON_PIPELINE_FAULTS", "0"))
SECONDS = float(os.environ.get("HERON_CHAOS_SECONDS", "inf"))
"""The campaign ends earlier after so long."""
DISK_MB = 64
RERUNS_MAX = 1
"""Once nothing fails any more, one run has to make all of it good."""
SPILLS = 0.2
"""The share of the tasks' errors that concerns what they spill: how much that is depends on their memory."""
SAID = ("Error", "killed")
ROLES = {DRIVER: "driver", TASK: "task"}


@dataclass
class Struck:
    """What came of one fault."""

    kind: str
    scenario: str
    step: str
    outcome: str = "exact"
    """`exact`: the run was right all the same; `said`: it said that it failed, or died; `not reached`."""
    line: str = ""
    reruns: int = 0
    wrong: str = ""
    """What no run may do."""
    seconds: float = 0.0


class Campaign:
    """Faults on batch runs, one after the other."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.disk, self.dice, self.seed = directory, random.Random(seed), seed
        tools = directory / "layer"
        tools.mkdir()
        self.layer = FaultyFiles(tools)
        self.server = Server(self.layer.env, "local[2,2]")
        self.scenarios = scenarios(directory, self.server, self.layer)
        self.struck: list[Struck] = []
        self.kinds: list[Callable[[Scenario, Path], Struck]] = [
            *[self.error] * 12,
            *[self.short] * 2,
            *[self.memory] * 5,
            *[self.kill_worker] * 4,
            self.kill_driver,
            self.kill_jvm,
            *[self.damage] * 5,
            *[self.damaged_view] * 2,
            *[self.full_disk] * 2,
            self.cli,
        ]

    def close(self) -> None:
        self.server.stop()

    def strike(self, number: int) -> Struck:
        """One fault, and what was made of it."""
        kind, scenario = self.dice.choice(self.kinds), self.dice.choice(self.scenarios)
        work = self.disk / f"work-{number}"
        shutil.copytree(scenario.template, work)
        began_s = time.monotonic()
        struck = kind(scenario, work)
        struck.seconds = round(time.monotonic() - began_s, 1)
        if struck.wrong:
            kept = Path(os.environ.get("HERON_CHAOS_KEEP", self.disk)) / f"wrong-{self.seed}-{number}"
            shutil.copytree(work, kept, dirs_exist_ok=True)
        shutil.rmtree(work)
        self.struck.append(struck)
        line = f" ({struck.line[:160]})" if struck.line else ""
        print(
            f"{time.strftime('%H:%M:%S')} fault {number}: {struck.kind} [{scenario.name}] {struck.step}: "
            f"{struck.outcome}{line}{f' WRONG: {struck.wrong}' if struck.wrong else ''}",
            flush=True,
        )
        figures.append(FIGURES, seed=self.seed, number=number, **asdict(struck))
        return struck

    # Kinds of faults

    def error(self, scenario: Scenario, work: Path) -> Struck:
        action = self.dice.choice(["EIO", "EIO", "ENOSPC", "ESTALE", "EINTR"])
        repeat = self.dice.choice([1, 1, 3] if action == "EINTR" else [1, 1, 3, FOR_EVER])
        return self._by_layer(action, scenario, work, repeat=repeat)

    def short(self, scenario: Scenario, work: Path) -> Struck:
        return self._by_layer("short", scenario, work, repeat=self.dice.choice([1, 20]))

    def memory(self, scenario: Scenario, work: Path) -> Struck:
        if self.dice.random() < 0.5:
            extra = self.dice.randrange(1 << 24)
            return self._by_layer("RLIMIT_AS", scenario, work, extra=extra)
        repeat, extra = self.dice.choice([1, 1, 3, FOR_EVER]), self.dice.randrange(60)
        return self._by_layer("no memory", scenario, work, repeat=repeat, extra=extra)

    def kill_worker(self, scenario: Scenario, work: Path) -> Struck:
        return self._by_layer("kill -9", scenario, work, role=TASK)

    def kill_driver(self, scenario: Scenario, work: Path) -> Struck:
        return self._by_layer("kill -9", scenario, work, role=DRIVER)

    def kill_jvm(self, scenario: Scenario, work: Path) -> Struck:
        """That of the executor, which is the driver's here."""
        return self._by_layer("kill -9 of the JVM", scenario, work, role=TASK)

    def cli(self, scenario: Scenario, work: Path) -> Struck:
        action = self.dice.choice(["kill -9", "EIO", "ENOSPC"])
        role, name, at = self._step(scenario, DRIVER)
        self.layer.watch(work)
        self.layer.arm(role, action, at, repeat=1 if action == "kill -9" else FOR_EVER)
        struck = Struck(f"CLI: {action}", scenario.name, name)
        driver = self.layer.driver
        answer = scenario.by_cli(work, self.layer.env)
        self._fired(struck)
        self.layer.driver = driver
        return self._judged(struck, scenario, work, answer)

    def damage(self, scenario: Scenario, work: Path) -> Struck:
        """Damage files of the archive; afterwards they are put back."""
        files = sorted((work / "archive" / "events").glob("batch=*/*.parquet"))
        name, change = self.dice.choice([*CHANGES.items()])
        hurt = self.dice.sample(files, 2)
        whole = {path: path.read_bytes() for path in hurt}
        change(self.dice, *hurt)
        struck = Struck(f"archive: {name}", scenario.name, " ".join(path.parent.name for path in hurt))
        command = scenario.command(work, compact=False)
        self.layer.watch(work)
        answer = self.server.ask(command)
        self._judge_first(struck, scenario, work, answer)
        for path, data in whole.items():
            path.write_bytes(data)
        return self._rerun(struck, scenario, work)

    def damaged_view(self, scenario: Scenario, work: Path) -> Struck:
        """Damage files of views that are done: reads say so, or are right; a backfill makes it good."""
        self.layer.watch(work)
        assert not self.server.ask(scenario.command(work))["error"]
        files = sorted((work / "views").glob("*/*/*/*.parquet"))
        name, change = self.dice.choice([*CHANGES.items()])
        hurt = self.dice.sample(files, 2)
        change(self.dice, *hurt)
        struck = Struck(f"view: {name}", scenario.name, " ".join(str(path.relative_to(work)) for path in hurt))
        try:
            struck.wrong = _difference(scenario.after, scenario.found(work))
        except HeronError as error:
            struck.outcome, struck.line = "said", str(error)
        return self._rerun(struck, scenario, work, again=True)

    def full_disk(self, scenario: Scenario, work: Path) -> Struck:
        room_kb = self.dice.randrange(0, 300, 4)
        rest, room = self.disk / "rest", self.disk / "room"
        room.write_bytes(bytes(room_kb * 1024))
        fill(rest)
        room.unlink()
        struck = Struck("disk full", scenario.name, f"{room_kb} KB left")
        self.layer.watch(work)
        answer = self.server.ask(scenario.command(work))
        rest.unlink()
        return self._judged(struck, scenario, work, answer)

    # How they are done and judged

    def _step(self, scenario: Scenario, role: int | None = None) -> tuple[int, str, int]:
        """A role, a step and the number of its call."""
        role = self.dice.choice([DRIVER, TASK]) if role is None else role
        name = self.dice.choice(sorted(scenario.steps[role]))
        return role, name, self.dice.choice(scenario.steps[role][name])

    def _by_layer(
        self,
        action: str,
        scenario: Scenario,
        work: Path,
        *,
        role: int | None = None,
        repeat: int = 1,
        extra: int = 0,
    ) -> Struck:
        role, name, at = self._step(scenario, role)
        self.server.start()
        if role == TASK and action in ("EIO", "ENOSPC", "short") and self.dice.random() < SPILLS:
            name, at = "what tasks spill", self.dice.randint(1, 30)
            self.layer.watch(self.server.scratch)
        else:
            self.layer.watch(work)
        self.layer.arm(role, action, at, repeat=repeat, extra=extra)
        struck = Struck(f"{ROLES[role]}: {action}", scenario.name, name)
        answer = self.server.ask(scenario.command(work))
        self._fired(struck)
        if self.layer.fired and action == "kill -9 of the JVM":
            self.server.stop()
        return self._judged(struck, scenario, work, answer)

    def _fired(self, struck: Struck) -> None:
        self.layer.disarm()
        struck.outcome = "exact" if self.layer.fired else "not reached"
        struck.step = self.layer.fired or struck.step

    def _judged(self, struck: Struck, scenario: Scenario, work: Path, answer: Answer) -> Struck:
        self._judge_first(struck, scenario, work, answer)
        return self._rerun(struck, scenario, work)

    def _judge_first(self, struck: Struck, scenario: Scenario, work: Path, answer: Answer) -> None:
        """A run that says nothing is right; what one that failed has done is right, too."""
        if answer["error"]:
            struck.outcome, struck.line = "said", f"{answer['error']}: {answer['line']}"
            if not answer["error"].endswith(SAID) or answer["code"] == 70 or "\n" in answer["line"].strip():
                struck.wrong = f"said as {answer}"
            now = scenario.found(work)["batches"]
            for batch, rows in now.items():
                sides = [side["batches"].get(batch) for side in (scenario.before, scenario.after)]
                if batch >= 0 and rows not in sides:
                    struck.wrong = struck.wrong or f"batch {batch} is done, and wrong: {_shown(rows, sides)}"
        else:
            struck.wrong = _difference(scenario.after, scenario.found(work))

    def _rerun(self, struck: Struck, scenario: Scenario, work: Path, *, again: bool = False) -> Struck:
        """Runs without a fault, until all is as it would be without any."""
        self.layer.watch()
        while not struck.wrong and (again or _difference(scenario.after, scenario.found(work))):
            if struck.reruns == RERUNS_MAX:
                struck.wrong = f"after {struck.reruns} reruns: {_difference(scenario.after, scenario.found(work))}"
                break
            struck.reruns += 1
            answer = self.server.ask(scenario.command(work, compact=False, again=again))
            again = False
            if answer["error"]:
                struck.wrong = f"a rerun without a fault failed: {answer}"
        return struck


def cut(dice: random.Random, path: Path, _other: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(dice.randrange(path.stat().st_size))


def flip(dice: random.Random, path: Path, _other: Path) -> None:
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def zero(dice: random.Random, path: Path, _other: Path) -> None:
    data = bytearray(path.read_bytes())
    at = dice.randrange(len(data))
    end = min(len(data), at + 512)
    data[at:end] = bytes(end - at)
    path.write_bytes(data)


def swap(_dice: random.Random, path: Path, other: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(data)


CHANGES = {"truncated": cut, "a bit flipped": flip, "zeros": zero, "two files swapped": swap}


def _difference(wanted: Any, got: Any) -> str:
    """The first difference between what was wanted and what is there; empty if there is none."""
    if wanted["letters"] != got["letters"]:
        more, less = Counter(got["letters"]), Counter(wanted["letters"])
        return (
            f"dead letters: {list((more - less).elements())[:2]} too many, {list((less - more).elements())[:2]} missing"
        )
    if wanted["watermark"] != got["watermark"]:
        return f"batches are done up to {got['watermark']}, not {wanted['watermark']}"
    for batch in sorted({*wanted["batches"], *got["batches"]}):
        a, b = (side["batches"].get(batch) for side in (wanted, got))
        if a != b:
            return f"batch {batch}: {_shown(b, [a])}"
    return ""


def _shown(rows: Any, sides: list[Any]) -> str:
    wanted = sides[-1]
    if rows is None or wanted is None:
        return f"there is {'none' if rows is None else 'one too many'}"
    return "; ".join(
        f"{n}: {rows.get(n)!r:.200} not {wanted.get(n)!r:.200}" for n in wanted if rows.get(n) != wanted.get(n)
    )


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


def wrong(tmp_path: Path, faults: int, within_s: float = math.inf) -> list[Struck]:
    """Strike so often, and print a table; what was wrong."""
    if why := compiler_missing() or spark_missing():
        pytest.skip(why)
    seed = int(os.environ.get("HERON_CHAOS_SEED", "1"))
    until_s = time.monotonic() + within_s
    print(f"\nHERON_CHAOS_SEED={seed}", flush=True)
    with small_disk(tmp_path / "disk", DISK_MB) as disk:
        campaign = Campaign(disk, seed)
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
def test_after_a_fault_the_views_are_those_of_a_run_without_it_or_the_run_has_said_so(tmp_path: Path) -> None:
    assert wrong(tmp_path, FAULTS, SECONDS) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_some_faults_of_a_batch_run_leave_no_wrong_view(tmp_path: Path) -> None:
    assert wrong(tmp_path, 8) == []
