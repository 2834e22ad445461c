"""Topologies that begin with what a batch job has computed, also of another program than theirs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy import connectors
from heronpy.archive import ArchiveWriter
from heronpy.errors import AlreadyExistsError, StateError, TopologyError
from heronpy.filesystem import UrlPath, files_of, location
from heronpy.pipeline import Job, bootstrap, running, states
from heronpy.pipeline.vacuum import vacuum
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.bootstrap import name_bootstrap, read_states, write_states
from heronpy.streamlet.runner import Program
from tests.chaos.inline_spark import inline_session
from tests.unit.memory_storage import MemoryStorage
from tests.unit.pipeline_model import model
from tests.unit.streamlet_kit import WRITTEN, ListSink, ListSource, run

FUNCTIONS: dict[str, Callable[[int, int], int]] = {"sum": lambda a, b: a + b, "max": max}
BATCH_MS = 10_000


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    model(monkeypatch, long=False)
    monkeypatch.setattr("heronpy.pipeline._states.spark_session", inline_session)


class Seen(ListSink):
    """Remembers what it gets in a topology."""

    supports_batch = True

    def write_part(self, path: Path, elements: Iterable[Any]) -> Path:
        path.write_text("".join(f"{element}\n" for element in elements))
        return path


def program(place: Path, order: Sequence[str], elements: Sequence[int], *, named: bool) -> tuple[Builder, Config]:
    """Each reduction of all numbers into a view of its name, and into a sink."""
    builder, config = Builder(), Config()
    source = ListSource("in", elements, [BATCH_MS + n for n in range(len(elements))])
    numbers = builder.new_source(source).set_name("numbers").archive()
    for what in order:
        reduced = numbers.map(lambda n: ("all", n)).reduce_by_key(FUNCTIONS[what])
        reduced = reduced.set_name(what) if named else reduced
        reduced.to_store(what, Sum())
        reduced.map(lambda pair, what=what: (what, pair[1])).to_sink(Seen(what), name=f"{what}-sink")
    config.set_pipeline(place, batch_length=BATCH_MS // 1000)
    return builder, config


def bootstrapped(place: Path, order: Sequence[str], *, named: bool = False) -> None:
    """Archive some numbers in batch 0, compute it, and have topologies begin with it."""
    with contextlib.closing(
        ArchiveWriter(
            place / "archive" / "events", task="0", batch_length_ms=BATCH_MS, codec="columns", dead_letter=print
        )
    ) as writer:
        for number in (1, 2, 3):
            writer.add(str(number), number, number)
        writer.commit()
        writer.progress(BATCH_MS)
    builder, config = program(place, order, [], named=named)
    job = Job.of(Program("edited", config, builder.graph))
    running.run(job, master="local[2]")
    bootstrap(job, master="local[2]")


@pytest.mark.parametrize("other", [running.run, vacuum])
def test_nothing_removes_the_states_of_a_bootstrap_that_goes_on(tmp_path: Path, other: Callable[[Job], Any]) -> None:
    bootstrapped(tmp_path, ["sum"], named=True)
    builder, config = program(tmp_path, ["sum"], [], named=True)
    job = Job.of(Program("edited", config, builder.graph))
    with states(job) as found:
        with pytest.raises(AlreadyExistsError, match="works on"):
            other(job)
        assert dict(found["sum"]) == {"all": 6}
    other(job)


def results_of_one_more(place: Path, order: Sequence[str], *, named: bool = False) -> dict[str, int]:
    """What a topology makes of another number, 10."""
    builder, config = program(place, order, [10], named=named)
    run(builder, config, until=lambda: all(WRITTEN[what] for what in order))
    return dict(pair for what in order for pair in WRITTEN[what])


@pytest.mark.parametrize(
    ("before", "after"), [(["sum", "max"], ["max", "sum"]), (["sum", "max"], ["max"]), (["max"], ["sum", "max"])]
)
def test_a_reduction_does_not_begin_with_the_state_of_one_that_had_its_number(
    tmp_path: Path, before: Sequence[str], after: Sequence[str]
) -> None:
    bootstrapped(tmp_path, before)
    with pytest.raises(StateError, match="the state of another reduce_by_key-1"):
        results_of_one_more(tmp_path, after)


@pytest.mark.parametrize("named", [False, True])
def test_reductions_go_on_from_what_is_theirs(tmp_path: Path, named: bool) -> None:
    bootstrapped(tmp_path, ["sum", "max"], named=named)
    order = ["max", "sum"] if named else ["sum", "max"]
    assert results_of_one_more(tmp_path, order, named=named) == {"sum": 16, "max": 10}


def test_what_reductions_have_that_nothing_tells_apart_is_no_bootstrap(tmp_path: Path) -> None:
    builder, config = Builder(), Config()
    numbers = builder.new_source(connectors.ListSource([1], times=[0], ids=["a"])).map(lambda n: ("all", n))
    numbers.reduce_by_key(max).union(numbers.reduce_by_key(min)).to_store("v", Sum())
    config.set_pipeline(tmp_path, batch_length=BATCH_MS // 1000)
    job = Job.of(Program("read again", config, builder.graph))
    running.run(job, master="local[2]")
    with pytest.raises(TopologyError, match="reduce_by_key-1 and reduce_by_key-2 have no names"):
        bootstrap(job, master="local[2]")


def test_a_bootstrap_in_a_store_says_where_its_states_belong(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    monkeypatch.setattr("heronpy.checkpoints.open_storage", lambda url: storage)
    place = location("the job", "s3://bootstraps/job")
    assert isinstance(place, UrlPath)
    write_states(place / "bootstraps/1", "reduce_by_key-1", [("a", 1)])
    name_bootstrap(place, "bootstraps/1", {"reduce_by_key-1": "here"}, 42)
    assert dict(read_states(place, "reduce_by_key-1", "here")) == {"a": 1}
    with pytest.raises(StateError, match="the state of another reduce_by_key-1"):
        dict(read_states(place, "reduce_by_key-1", "there"))
    former = {"folder": "bootstraps/1", "states": ["reduce_by_key-1"], "before_ms": 42}
    files_of(place).write(place / "bootstrap.json", json.dumps(former).encode())
    assert dict(read_states(place, "reduce_by_key-1", "there")) == {"a": 1}, "an earlier heronpy did not say it"
