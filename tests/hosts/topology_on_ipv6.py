"""`python slurm_on_ipv6.py DIRECTORY ADDRESS`: on a host whose only address is IPv6, a topology on Slurm, exact."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import heron_scheduler
from keyed_count_topology import keyed_count_topology
from running_kit import Running, contains, with_real_containers
from test_slurm import Slurm

from heronpy import loader
from heronpy.submit import status, submit
from heronpy.testing.servers import ZookeeperServer
from heronpy.testing.slurm import SlurmCluster


def main(directory: Path, address: str) -> None:
    root, shared = directory / "root", directory / "root/shared"
    shared.mkdir(parents=True)
    zookeeper = ZookeeperServer(directory / "zookeeper")
    zookeeper.bind = address
    with zookeeper, SlurmCluster(address=address) as servers:
        os.environ.update(servers.env)
        cluster = with_real_containers(Slurm(root, servers), zookeeper)
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
    main(Path(sys.argv[1]), sys.argv[2])
