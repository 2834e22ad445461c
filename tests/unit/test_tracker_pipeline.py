"""What the Tracker says of a topology's batch side: by the last report, and by how far the archive is now."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace

import msgspec
import pytest
from heron_tracker.parts import PipelineMetrics, Tmasters, Topology, assemble, complete_before, pipeline_model
from prometheus_client import CollectorRegistry, generate_latest
from tmaster_world import packing_plan, topology

from heronpy.errors import UnavailableError
from heronpy.pipeline.record import Archived, Done, Drifted, Letters, Reconciled, Record, Run, Viewed
from heronpy.plan import BATCH_SIDE_KEY, COMPLETE_BEFORE_METRIC, BatchSide, batch_side_of, key_value
from heronpy.proto import state_pb2, tmaster_pb2, topology_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind

MINUTE = 60_000
AT_MS = 29_300_000 * MINUTE  # 2025-09-16 05:20
SIDE = BatchSide(batch_length_ms=MINUTE, archives={"events": "word"}, views=("counts",))
RECORD = Record(
    topology_id="words-1",
    job="words",
    at_ms=AT_MS,
    batch_length_ms=MINUTE,
    max_lateness_ms=0,
    committed_watermark=29_299_998,
    waiting=1,
    first_waiting=(29_299_999,),
    done=2,
    elements=70,
    damaged_batches=1,
    archives=(Archived(archive="events", complete_before_ms=AT_MS - MINUTE, newest_batch=29_299_999, files=3),),
    views=(Viewed(view="counts", batch_rows=9),),
    newest=(Done(batch=29_299_998, version="1a-2b", rows=9, damaged="a.parquet", took_s=1.5),),
    dead_letters=(
        Letters(origin="parse", reason='Bad"Value', side="live", count=4),
        Letters(origin="parse", reason='Bad"Value', side="batch", count=3),
    ),
    run=Run(began_at_s=AT_MS / 1000 - 9, seconds=3, error="it failed"),
    reconciled=Reconciled(at_s=5.0, views=(Drifted(view="counts", keys=3, drifted=1, percent=2.5),)),
)


def shown(record: bytes | None, side: str | None = SIDE.to_value()) -> Topology:
    definition = topology_pb2.Topology.FromString(topology())
    if side is not None:
        definition.topology_config.kvs.append(key_value(BATCH_SIDE_KEY, side, pickle.dumps))
    values: dict[Kind, bytes | None] = {
        Kind.EXECUTIONSTATE: state_pb2.ExecutionState(topology="words", topology_id="words-1").SerializeToString(),
        Kind.TOPOLOGIES: definition.SerializeToString(),
        Kind.PACKINGPLANS: packing_plan(1, 2, 3).to_proto().SerializeToString(),
        Kind.PIPELINES: record,
    }
    found = assemble("local", values, None, 0.0)
    assert found is not None
    return found


def told(found: Topology, live: dict[str, int] | None = None, now_ms: int = AT_MS) -> dict[str, object]:
    return pipeline_model(found, SIDE, live or {}, "ok", now_ms).model_dump()


def test_the_report_is_told_with_batches_by_their_time() -> None:
    answer = told(shown(RECORD.encode()))
    assert answer["closed"] == "2025-09-16 05:18"
    assert (answer["lag_ms"], answer["archive_lag_ms"]) == (MINUTE, MINUTE)
    assert answer["next"] == {
        "batch": 29_299_999,
        "name": "2025-09-16 05:19",
        "end_ms": AT_MS,
        "complete_at_ms": AT_MS,
        "complete": 0,
    }
    (view,) = pipeline_model(shown(RECORD.encode()), SIDE, {}, "ok", AT_MS).views
    assert (view.batch_rows, view.drifted, view.keys, view.drift_percent) == (9, 1, 3, 2.5)


def test_the_archive_goes_on_between_two_reports() -> None:
    now = told(shown(RECORD.encode()), {"events": AT_MS + MINUTE}, AT_MS + MINUTE)
    assert now["archive_complete_before_ms"] == AT_MS + MINUTE
    assert now["next"]["complete"] == 2  # type: ignore[index]  # one of the report, and one since


@pytest.mark.parametrize(
    "record", [None, b"{}", b"x" * (1 << 20), msgspec.structs.replace(RECORD, topology_id="words-0").encode()]
)
def test_without_a_sound_report_of_this_very_topology_its_program_is_told(record: bytes | None) -> None:
    found = shown(record)
    assert len(found.instances("word")) == 3, "the rest of the topology does not suffer"
    answer = pipeline_model(found, SIDE, {"events": 5}, "ok", AT_MS)
    assert (answer.reported_ms, answer.closed, answer.lag_ms, answer.next) == (None,) * 4
    assert [(one.archive, one.component, one.complete_before_ms) for one in answer.archives] == [("events", "word", 5)]
    assert [one.view for one in answer.views] == ["counts"]
    assert bool(answer.problem) == (record is not None and b"words-0" not in record)


@pytest.mark.parametrize(
    "value", ["", "[]", "{}", '{"batch_length_ms":0,"archives":{},"views":[]}', "[" * 60_000, "x" * 100_000]
)
def test_a_damaged_configuration_is_no_batch_side(value: str) -> None:
    assert shown(RECORD.encode(), value).batch_side is None
    assert batch_side_of({BATCH_SIDE_KEY: 3}) is None
    assert shown(None).batch_side == SIDE


def test_of_hundreds_of_archives_and_views_the_first_are_shown() -> None:
    names = [f"{n:0128d}" for n in range(300)]
    many = BatchSide(batch_length_ms=MINUTE, archives=dict.fromkeys(names, "word"), views=tuple(names))
    side = shown(None, many.to_value()).batch_side
    assert side is not None
    assert (list(side.archives), list(side.views)) == (names[:50], names[:50])


class Answers(Tmasters):
    """A Topology Master that says this."""

    def __init__(self, values: dict[str, float] | None) -> None:
        super().__init__(self.no_launch)
        self.values = values

    async def no_launch(self, topology: Topology) -> Launch:
        raise AssertionError("no connection is made")

    async def metrics(self, topology: Topology, request: tmaster_pb2.MetricsRequest) -> tmaster_pb2.MetricsReply:
        assert list(request.metrics) == [COMPLETE_BEFORE_METRIC]
        if self.values is None:
            raise UnavailableError("it is away")
        series = [
            tmaster_pb2.MetricSeries(component="word", instance=instance, name=COMPLETE_BEFORE_METRIC, value=value)
            for instance, value in self.values.items()
        ]
        return tmaster_pb2.MetricsReply(series=series)


def test_an_archive_is_as_far_as_the_slowest_of_its_writers() -> None:
    found = shown(None)
    tasks = found.instances("word")

    def asked(values: dict[str, float] | None) -> tuple[dict[str, int], str]:
        return asyncio.run(complete_before(Answers(values), found, SIDE))

    assert asked({task: 100.0 + n for n, task in enumerate(tasks)}) == ({"events": 100}, "ok")
    assert asked(dict.fromkeys(tasks[1:], 100.0)) == ({}, "ok"), "one that says nothing may hold it up"
    assert asked({task: float("nan") for task in tasks}) == ({}, "ok")
    assert asked(None) == ({}, "it is away")


def test_prometheus_gets_lag_dead_letters_damage_and_drift_with_their_units() -> None:
    registry = CollectorRegistry()
    one = shown(RECORD.encode())
    registry.register(PipelineMetrics(lambda: [one, replace(one, pipeline=None)]))
    text = generate_latest(registry).decode()
    at = 'cluster="",environ="",role="",topology="words"'

    def value(name: str, **more: str) -> float:
        labels = ",".join(sorted([*at.split(","), *(f'{k}="{v}"' for k, v in more.items())]))
        found = [line for line in text.splitlines() if line.startswith(f"heron_pipeline_{name}{{")]
        (line,) = [x for x in found if ",".join(sorted(x[x.index("{") + 1 : x.rindex("}")].split(","))) == labels]
        return float(line.rpartition(" ")[2])

    assert value("lag_seconds") > 3600
    assert value("closed_before_seconds") == AT_MS / 1000 - 60
    assert value("batch_length_seconds") == 60
    assert value("max_lateness_seconds") == 0
    assert value("archive_lag_seconds") == 60
    assert [value("batches", state=state) for state in ("done", "damaged", "waiting")] == [2, 1, 1]
    assert value("dead_letters", origin="parse", reason='Bad\\"Value', side="live") == 4
    assert value("dead_letters", origin="parse", reason='Bad\\"Value', side="batch") == 3
    assert value("drifted_keys", view="counts") == 1
    assert value("last_run_failed") == 1
    assert text.count("# HELP heron_pipeline_") == text.count("# TYPE heron_pipeline_") == 14
