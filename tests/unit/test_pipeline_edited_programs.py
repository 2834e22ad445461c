"""Programs that were changed between two runs: what one operator has kept is not taken for another's."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import ArchiveWriter
from heronpy.connectors import JsonLinesSink, ListSource
from heronpy.errors import TopologyError
from heronpy.pipeline import Job, MergedStore, RunReport, ViewReader, rollup, running
from heronpy.streamlet import Builder, Config, Max, Monoid, Streamlet, Sum, WindowConfig
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import LENGTH_MS, Killed, model

SEEDS = 200 if os.environ.get("HERON_LONG") == "1" else 3
FIRST_SEED = int(os.environ.get("HERON_MODEL_SEED", "0"))
NUMBERS = (1, 2, 3)
"""In each batch."""
Define = Callable[[Streamlet], None]


def _plus(a: int, b: int) -> int:
    return a + b


FUNCTIONS: dict[str, Callable[[int, int], int]] = {"sum": _plus, "max": max}


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    model(monkeypatch, long=False)


def write(place: Path, *batches: int, upto: int = 0, ids: str = "") -> None:
    """Archive the numbers in each batch; all up to the last are complete, or up to a later one."""
    with contextlib.closing(
        ArchiveWriter(
            place / "archive" / "events", task="0", batch_length_ms=LENGTH_MS, codec="columns", dead_letter=print
        )
    ) as writer:
        for batch in batches:
            for number in NUMBERS:
                writer.add(f"{ids}{batch}-{number}", batch * LENGTH_MS + number * 2_000, number)
        writer.commit()
        writer.progress((max(*batches, upto) + 1) * LENGTH_MS)


def job(place: Path, program: Define) -> Job:
    builder, config = Builder(), Config()
    program(builder.new_source(ListSource([1], times=[0], ids=["a"])).archive())
    config.set_pipeline(place, batch_length=LENGTH_MS // 1000)
    return Job.of(Program("edited", config, builder.graph))


def run(place: Path, program: Define, **options: Any) -> RunReport:
    return running.run(job(place, program), master="local[2]", **options)


def view(place: Path, name: str = "v", monoid: Monoid | None = None) -> dict[int, dict[Any, int]]:
    with contextlib.closing(ViewReader(place, name, monoid or Max())) as reader:
        return {n: rows for n in reader.batches() if (rows := dict(reader.items(n)))}


def reduced(numbers: Streamlet, what: str, name: str = "") -> Streamlet:
    """(`what`, the reduction of all numbers)."""
    made = numbers.map(lambda n: ("all", n)).reduce_by_key(FUNCTIONS[what])
    return (made.set_name(name) if name else made).map(lambda pair: (what, pair[1]))


def test_reductions_in_other_places_may_change_their_order(tmp_path: Path) -> None:
    def program(numbers: Streamlet) -> None:
        for what in order:
            reduced(numbers, what).to_store(what, Max())

    order = ["sum", "max"]
    write(tmp_path, 0, 1)
    run(tmp_path, program)
    write(tmp_path, 2)
    order.reverse()
    assert run(tmp_path, program).batches == [0, 1, 2]
    assert view(tmp_path, "sum")[2] == {"sum": 18}
    assert view(tmp_path, "max")[2] == {"max": 3}


def test_reductions_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    def into_a_view(numbers: Streamlet) -> None:
        reduced(numbers, "sum").union(reduced(numbers, "max")).to_store("v", Max())

    def into_sinks(numbers: Streamlet) -> None:
        for what in FUNCTIONS:
            reduced(numbers, what).to_sink(JsonLinesSink(tmp_path / what))

    for program in (into_a_view, into_sinks):
        with pytest.raises(TopologyError, match="reduce_by_key-1 and reduce_by_key-2 have no names"):
            run(tmp_path, program)


def test_a_reduction_does_not_go_on_from_a_named_one_that_was_beside_it(tmp_path: Path) -> None:
    def both(numbers: Streamlet) -> None:
        reduced(numbers, "max").union(reduced(numbers, "sum", "total")).to_store("v", Max())

    write(tmp_path, 0, 1)
    run(tmp_path, both)
    write(tmp_path, 2)
    run(tmp_path, lambda numbers: reduced(numbers, "sum").to_store("v", Max()))
    assert view(tmp_path)[2] == {"sum": 18}


@pytest.mark.parametrize("with_reduction", [False, True])
@pytest.mark.parametrize("batches", [range(6), (0, 2, 3, 9)], ids=list)
@pytest.mark.parametrize(
    ("before", "after"),
    [((30, 30), (10, 10)), ((30, 10), (10, 10)), ((30, 10), (20, 10)), ((30, 10), (30, 30)), ((10, 10), (30, 10))],
)
def test_other_windows_make_what_they_would_have_made_from_the_beginning(
    tmp_path: Path, before: tuple[int, int], after: tuple[int, int], batches: Sequence[int], with_reduction: bool
) -> None:
    def program(window: tuple[int, int]) -> Define:
        def define(numbers: Streamlet) -> None:
            windowed = numbers.map(lambda n: ("all", n)).reduce_by_key_and_window(WindowConfig(*window), _plus)
            windowed.map(lambda pair: (tuple(pair[0].window), pair[1])).to_store("windows", Sum())
            if with_reduction:
                reduced(numbers, "sum").to_store("v", Max())

        return define

    def read(place: Path, window: tuple[int, int], *keys: Any) -> tuple[dict[Any, Any], ...]:
        with MergedStore(job(place, program(window)), "windows", exact_only=True) as store:
            found = dict(store.items())
            return found, {key: store.get(key) for key in {*found, *keys}}, view(place, "windows", Sum())

    until_ms = 13 * LENGTH_MS
    edited, anew = tmp_path / "edited", tmp_path / "anew"
    for place in (edited, anew):
        write(place, *batches)
    run(edited, program(before), until_ms=until_ms)
    former = read(edited, before)[0]
    for place in (edited, anew):
        run(place, program(after), until_ms=until_ms)
    assert read(edited, after, *former) == read(anew, after, *former)
    assert run(edited, program(after), until_ms=until_ms, everything=True).batches == []


def into_sinks(*names: str, named: Collection[str] = ()) -> Define:
    """A sink for each name, of elements that are this; those in `named` have it."""

    def define(numbers: Streamlet) -> None:
        for name in names:
            words = numbers.map(lambda _, name=name: name)
            words.to_sink(JsonLinesSink(f"out-{name}"), name=name if name in named else None)

    return define


def in_files(place: Path) -> dict[str, set[str]]:
    """What is in the files of each sink, by sink and batch."""
    found: dict[str, set[str]] = {}
    for path in place.glob("sinks/*/*/*/part-*"):
        found.setdefault(f"{path.parts[-4]}/{path.parts[-3]}", set()).update(path.read_text().split())
    return found


def test_a_sink_does_not_keep_what_one_had_that_is_gone(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    run(tmp_path, into_sinks("first", "second", named=["second"]))
    write(tmp_path, 2)
    run(tmp_path, into_sinks("second"))
    assert in_files(tmp_path) == {f"sink-1/batch={n}": {'"second"'} for n in range(3)}


def test_sinks_that_change_places_keep_their_files(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    run(tmp_path, into_sinks("first", "second", named=["first", "second"]))
    write(tmp_path, 2)
    assert run(tmp_path, into_sinks("second", "first", named=["first", "second"])).batches == [2]
    assert in_files(tmp_path) == {f"{what}/batch={n}": {f'"{what}"'} for what in ("first", "second") for n in range(3)}


def test_sinks_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 0)
    with pytest.raises(TopologyError, match=r"sink-1 and sink-2 have no names.*to_sink\(…, name=…\)"):
        run(tmp_path, into_sinks("first", "second"))
    run(tmp_path, into_sinks("first", "second", named=["first"]))


VIEWS: dict[str, Monoid] = {
    "counts": Sum(),
    "windows": Sum(),
    "so-far": Max(),
    "of-these": Sum(),
    "from-windows": Max(),
}
WINDOWS = [(5, 5), (10, 10), (15, 5), (20, 10), (20, 20), (30, 10), (30, 30)]


def several(outputs: Mapping[str, tuple[int, int]], sinks: int, *, named: bool) -> Define:
    """A program with some of `VIEWS`, made in these windows if in any, and so many sinks."""

    def define(numbers: Streamlet) -> None:
        def windowed(pairs: Streamlet, view: str) -> Streamlet:
            return pairs.reduce_by_key_and_window(WindowConfig(*outputs[view]), _plus)

        pairs = numbers.map(lambda n: (n % 3, n)).set_name("pairs")
        if "counts" in outputs:
            pairs.to_store("counts", Sum())
        if "windows" in outputs:
            windowed(pairs, "windows").to_store("windows", Sum())
        if "so-far" in outputs or "of-these" in outputs:
            so_far = pairs.reduce_by_key(_plus)
            so_far = so_far.set_name("r") if named else so_far
            so_far.to_store("so-far", Max())
            if "of-these" in outputs:
                windowed(so_far, "of-these").to_store("of-these", Sum())
        if "from-windows" in outputs:
            of_windows = windowed(pairs, "from-windows").map(lambda pair: (pair[0].key, pair[1]))
            of_windows.reduce_by_key(_plus).to_store("from-windows", Max())
        for number in range(sinks):
            pairs.to_sink(JsonLinesSink(f"out-{number}"), name=f"out-{number}" if number else None)

    return define


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_programs_that_are_edited_between_runs_that_die_come_to_what_the_last_makes_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chosen = random.Random(seed)
    operations = model(monkeypatch, long=chosen.random() < 0.6)
    if chosen.random() < 0.5:
        monkeypatch.setattr(rollup, "TIER_BATCHES", 2)
        monkeypatch.setattr(running, "_GROUP_BYTES", 3_000)
        monkeypatch.setattr(running, "_CORE_BYTES", 1)
    edited, anew, upto = tmp_path / "edited", tmp_path / "anew", 3
    outputs: dict[str, tuple[int, int]] = {"counts": (10, 10)}
    program = several(outputs, 0, named=False)
    write(edited, *(batch for batch in range(upto) if chosen.random() < 0.6), upto)
    for step in range(chosen.randint(2, 7)):
        match chosen.choice(["edit", "new", "late", "nothing"]):
            case "edit":
                name = chosen.choice(list(VIEWS))
                if len(outputs) > 1 and name in outputs and chosen.random() < 0.5:
                    del outputs[name]
                else:
                    outputs[name] = chosen.choice(WINDOWS)
                program = several(dict(outputs), chosen.randint(0, 2), named=chosen.random() < 0.5)
            case "new":
                first, upto = upto + 1, upto + chosen.randint(1, 4)
                write(edited, *(batch for batch in range(first, upto) if chosen.random() < 0.5), upto)
            case "late":
                write(edited, chosen.randint(0, upto), upto=upto, ids=f"late-{step}-")
        until_ms = chosen.choice([None, None, chosen.randint(0, upto + 1) * LENGTH_MS])
        kill_at = chosen.choice([None, chosen.randint(1, 150)])
        with contextlib.suppress(Killed), operations.watched(kill_at):
            run(edited, program, until_ms=until_ms)
    run(edited, program)
    shutil.copytree(edited / "archive", anew / "archive")
    run(anew, program)
    for name in job(anew, program).stores():
        assert view(edited, name, VIEWS[name]) == view(anew, name, VIEWS[name]), name
    assert run(edited, program).batches == []
    assert run(edited, program, everything=True).batches == []
