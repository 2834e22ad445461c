"""`python topology_on_ipv6.py SCHEDULER DIRECTORY ADDRESS`: on a host whose only address is IPv6, a topology, exact."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import heron_scheduler
from keyed_count_topology import keyed_count_topology
from running_kit import Running, contains, with_real_containers
from scheduler_kit import Cluster
from test_slurm import Slurm
from test_spark import Spark

from heronpy import loader
from heronpy.submit import status, submit
from heronpy.testing.servers import ZookeeperServer
from heronpy.testing.slurm import SlurmCluster
from heronpy.testing.spark import SparkCluster


@contextlib.contextmanager
def on_slurm(root: Path, address: str) -> Iterator[Cluster]:
    with SlurmCluster(address=address) as servers:
        os.environ.update(servers.env)
        yield Slurm(root, servers)


@contextlib.contextmanager
def on_spark(root: Path, address: str) -> Iterator[Cluster]:
    with SparkCluster(address=address, cores=16) as servers:
        yield Spark(root, servers)


def main(scheduler: str, directory: Path, address: str) -> None:
    root, shared = directory / "root", directory / "root/shared"
    shared.mkdir(parents=True)
    zookeeper = ZookeeperServer(directory / "zookeeper")
    zookeeper.bind = address
    on = {"slurm": on_slurm, "spark": on_spark}[scheduler]
    with zookeeper, on(root, address) as cluster:
        with_real_containers(cluster, zookeeper)
        cluster.more = {**cluster.more, "heron.network.bind.address": "::"}
        definition = loader.Definition.of(keyed_count_topology(shared, rate=300))
        home = cluster.machine("a")
        launch = submit(definition, cluster=cluster.name, role="me", home=home, config_path=cluster.conf)
        running = Running(cluster, launch, shared)
        try:
            running.wait_ready()
            reply = status(launch)
            assert {stmgr.location.host for stmgr in reply.stmgrs} == {address}, reply.stmgrs
            running.recovers_from("executor of container 1 killed", lambda: running.executor(1).send(signal.SIGKILL))
            contains(running.heron("status"), "3 of 3 containers run")
            contains(running.heron("logs", "executor-1"), "INFO")
            running.check_exact()
            running.heron("kill")
            running.nothing_left()
        finally:
            heron_scheduler.kill(launch)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
