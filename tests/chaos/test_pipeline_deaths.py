"""The whole loop under fire: processes of a pipeline are killed while it runs, and what is true afterwards."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger import eventually_pid
from pipeline_under_fire import BATCH_S, Pipeline, as_files, as_list, at_least, events, exact, totals

from heronpy.connectors import Source
from heronpy.pipeline import run
from heronpy.stores import RedisStore
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync
from heronpy.testing.servers import RedisServer, redis_missing, spark_missing

FAST = {
    "heron.metrics.export.interval.ms": 1000,
    "heron.executor.stop.timeout.ms": 2000,
    "heron.executor.stable.ms": 500,
}
EVENTS = 4000
VICTIMS = ["source", "archive", "store-1", "window", "store-2", "stmgr-1", "stmgr-2"]
Events = list[dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[None]:
    if why := spark_missing():
        pytest.skip(why)
    from heronpy.pipeline import spark_session

    with spark_session("tests", "local[2]"):  # the runs below find it, and leave it
        yield


@pytest.fixture
def dice() -> random.Random:
    seed = int(os.environ.get("HERON_CHAOS_SEED", "1"))
    print(f"\nHERON_CHAOS_SEED={seed}")
    return random.Random(seed)


def archived_at_least(pipeline: Pipeline, count: int) -> None:
    """Wait until so many events are in the archive."""

    def check() -> None:
        assert len(pipeline.archived()) >= count

    eventually_sync(check, within_s=150)


def kill_one(topology: TopologyHandle, victim: str, dice: random.Random) -> None:
    """kill -9 of a process whose id is `victim`, or of one of the instances of that component."""
    found = sorted(id for id in topology.processes() if id == victim or f"_{victim}_" in id)
    assert found, f"no {victim} among {sorted(topology.processes())}"
    process = dice.choice(found)
    pid = topology.processes()[process]
    print(f"kill -9 {process}", flush=True)
    os.kill(pid, signal.SIGKILL)
    eventually_pid(topology, process, lambda new: new != pid)


def all_is_there(pipeline: Pipeline, made: Events, *, within_s: float = 150.0) -> None:
    """Wait until every event is in the archive and in the live views; none may be there that was never made."""
    wanted = exact(made)

    def archived() -> None:
        missing = {event["id"] for event in made} - pipeline.archived().keys()
        assert not missing, f"{len(missing)} of {len(made)} events are not in the archive"

    def live() -> None:
        missing = at_least(pipeline.live(), wanted)
        assert not missing, f"{len(missing)} rows of live views are too small: {missing[:3]}"

    eventually_sync(archived, within_s=within_s)
    eventually_sync(live, within_s=within_s)


def check_truth(pipeline: Pipeline, made: Events) -> None:
    """The archive has every event as it was, a batch run makes the exact views of it, and reads agree with those."""
    wanted = exact(made)
    times = {event["id"]: (round(event["time"] * 1000), event) for event in made}
    assert pipeline.archived() == times
    live = pipeline.live()
    assert at_least(live, wanted) == []
    drift = {name: totals(live[name]).total() - totals(wanted[name]).total() for name in wanted}
    end = max(batch for batch in wanted["sums"]) + 1

    half = run(pipeline.job, until_ms=(end - 2) * BATCH_S * 1000)  # others are read from the live side then
    assert half.committed_watermark == end - 3
    for name, rows in wanted.items():
        merged, least = pipeline.merged(name), totals(rows)
        assert all(merged[key] >= value for key, value in least.items())
        closed = {key for batch, there in rows.items() if batch <= end - 3 for key in there}
        if name == "windows":  # keys with a window are in one batch
            assert {key: merged[key] for key in closed} == {key: least[key] for key in closed}

    report = run(pipeline.job, until_ms=end * BATCH_S * 1000)
    print(f"drift of the live views {drift}, duplicates in the archive {half.duplicates + report.duplicates}")
    assert report.committed_watermark == end - 1
    assert pipeline.batch() == wanted
    assert {name: pipeline.merged(name) for name in wanted} == {name: totals(rows) for name, rows in wanted.items()}


CAMPAIGN = pytest.mark.skipif(
    "HERON_CHAOS_SECONDS" not in os.environ, reason="only with HERON_CHAOS_SECONDS: make chaos"
)


@pytest.mark.parametrize(
    ("victim", "source"),
    [
        # Each takes half a minute; the long ones keep events, counts, and windows.
        pytest.param("archive", as_files, marks=pytest.mark.long),
        pytest.param("store-1", as_list, marks=pytest.mark.long),
        pytest.param("window", as_files, marks=pytest.mark.long),
        *(
            pytest.param(*case, marks=CAMPAIGN)
            for case in [
                ("source", as_list),
                ("archive", as_list),
                ("stmgr-1", as_list),
                ("source", as_files),
                ("store-2", as_files),
                ("stmgr-2", as_files),
            ]
        ),
    ],
)
def test_the_batch_side_is_exact_and_the_live_side_complete_after_deaths(
    tmp_path: Path, dice: random.Random, victim: str, source: Callable[[Events, Path], Source]
) -> None:
    made = events(dice, EVENTS)
    pipeline = Pipeline(tmp_path, source(made, tmp_path / "input"))
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(pipeline.topology).wait_running()
        for part in (0.1, 0.5):
            archived_at_least(pipeline, int(EVENTS * (part + dice.random() * 0.2)))
            kill_one(topology, victim, dice)
        all_is_there(pipeline, made)
        check_truth(pipeline, made)


@pytest.mark.long
@pytest.mark.skipif(redis_missing() is not None, reason=str(redis_missing()))
def test_a_redis_that_is_away_and_writers_that_die_lose_nothing(tmp_path: Path, dice: random.Random) -> None:
    made = events(dice, EVENTS)
    with RedisServer(tmp_path / "redis") as redis, LocalCluster(FAST) as cluster:
        pipeline = Pipeline(tmp_path, as_list(made, tmp_path), RedisStore(redis.url))
        topology = cluster.submit(pipeline.topology).wait_running()
        archived_at_least(pipeline, EVENTS // 5)
        redis.kill()
        kill_one(topology, "store-1", dice)  # one starts anew without a server, the other waits with what it has

        def waits() -> None:
            logs = [topology.logs(id) for id in topology.processes() if "_store-1_" in id]
            assert all("tuples wait for view" in log for log in logs)

        eventually_sync(waits)
        redis.start()
        archived_at_least(pipeline, EVENTS // 2)
        kill_one(topology, "store-1", dice)
        all_is_there(pipeline, made)
        check_truth(pipeline, made)


@CAMPAIGN
@pytest.mark.timeout(0)
def test_a_long_campaign_of_deaths_leaves_the_truth_in_the_archive(tmp_path: Path, dice: random.Random) -> None:
    deadline = time.monotonic() + float(os.environ["HERON_CHAOS_SECONDS"])
    rounds = 0
    while time.monotonic() < deadline:
        rounds += 1
        made = events(dice, 4 * EVENTS)
        directory = tmp_path / str(rounds)
        directory.mkdir()
        pipeline = Pipeline(directory, dice.choice([as_list, as_files])(made, directory / "input"))
        with LocalCluster(FAST) as cluster:
            topology = cluster.submit(pipeline.topology).wait_running()
            for part in range(1, 9):
                archived_at_least(pipeline, EVENTS * part // 4)
                kill_one(topology, dice.choice(VICTIMS), dice)
            all_is_there(pipeline, made)
            check_truth(pipeline, made)
