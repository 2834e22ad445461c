"""A campaign of faults from a Kafka topic to another one, a PostgreSQL table and a Redis stream.

It has the faults of `test_fault_campaign.py`, and more: each of these servers is killed or does not answer for a while,
topics get partitions, tasks come and go, processes stop for a while. Effectively once every number comes out once in
each place; at least once none is missing. `make chaos-servers FAULTS=100`, and HERON_CHAOS_SEED=n repeats one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import figures
import pytest
from campaign import FIGURES, Campaign, Fault
from faults import (
    FAULTS,
    SEED,
    ZOOKEEPER_FAULTS,
    Scene,
    deactivate,
    pause,
    rescaling,
    restart_container,
    scene_of,
    skip_if_impossible,
)
from served_results import Results
from served_topology import served

from heronpy.testing.kafka import KafkaServer, kafka_missing
from heronpy.testing.postgres import PostgresServer, postgres_missing
from heronpy.testing.servers import RedisServer, redis_missing

CONTAINERS = 2
PARTITIONS_MAX = 12
AWAY_S = 12.0
"""How long a server is away at most; checkpoints come twice a second."""


def server_faults(server: KafkaServer | PostgresServer | RedisServer) -> tuple[Fault, Fault]:
    """It is killed and comes again with its data; it is there, and does not answer."""

    def away(how: str, scene: Scene, leave: Callable[[], None], come: Callable[[], None]) -> str:
        for_s = scene.dice.uniform(0, AWAY_S)
        leave()
        time.sleep(for_s)  # the fault itself
        come()
        return f"{how} {server.name} for {for_s:.1f} s"

    def killed(scene: Scene) -> str:
        return away("kill -9", scene, server.kill, server.start)

    def silent(scene: Scene) -> str:
        return away("SIGSTOP", scene, server.freeze, server.thaw)

    killed.__name__, silent.__name__ = f"kill_{server.name}", f"stop_{server.name}"
    return killed, silent


def partitioning(results: Results, topic: str) -> Fault:
    """The fault that a topic gets one more partition."""

    def add_partition(scene: Scene) -> str:
        if results.partitions(topic) == PARTITIONS_MAX:
            return f"{topic} has all its partitions"
        return f"{topic} has {results.add_partition(topic)} partitions"

    return add_partition


@pytest.mark.skipif(
    "HERON_SERVERS_FAULTS" not in os.environ, reason="only with HERON_SERVERS_FAULTS: make chaos-servers"
)
@pytest.mark.timeout(0)
@pytest.mark.parametrize("mode", ["EFFECTIVELY_ONCE", "ATLEAST_ONCE"])
def test_a_campaign_of_faults_leaves_every_number_in_every_place(tmp_path: Path, mode: str) -> None:
    skip_if_impossible()
    if missing := kafka_missing() or postgres_missing() or redis_missing():
        pytest.skip(missing)
    faults, once = int(os.environ["HERON_SERVERS_FAULTS"]), mode == "EFFECTIVELY_ONCE"
    with (
        KafkaServer(tmp_path / "kafka") as kafka,
        PostgresServer(tmp_path / "postgres") as postgres,
        RedisServer(tmp_path / "redis") as redis,
        closing(Results(kafka, postgres, redis, SEED, once=once)) as results,
        scene_of(served(results.places, mode, par=2, containers=CONTAINERS), tmp_path) as scene,
    ):
        servers = [server_faults(server) for server in (kafka, postgres, redis)]
        partitions = [partitioning(results, topic) for topic in (results.places.numbers, results.places.topic)]
        kinds = (
            *FAULTS,
            *[fault for pair in servers for fault in pair] * 2,
            *partitions,
            *[rescaling(["numbers", "split", "count", "topic", "table", "stream"])] * 3,
            *[pause] * 2,
            deactivate,
            restart_container,
        )
        campaign = Campaign(scene, results, kinds, [ZOOKEEPER_FAULTS, *servers, (*servers[0], *partitions)])
        try:
            campaign.run(faults)
        finally:
            failed = campaign.made_good < faults
            figures.append(FIGURES, seed=scene.seed, mode=mode, numbers=results.count, failed=failed)
            print(f"{campaign.made_good} faults made good, {results.count} numbers", flush=True)
    assert campaign.made_good == faults
