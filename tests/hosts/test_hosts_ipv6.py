"""A host that has an IPv6 address, and no IPv4 but that of its loopback, under a real scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heronpy.testing.hosts import Hosts, hosts_missing
from heronpy.testing.servers import zookeeper_missing
from heronpy.testing.slurm import slurm_missing
from heronpy.testing.spark import spark_missing

MISSING = hosts_missing() or zookeeper_missing()

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(900)]
SCRIPT = Path(__file__).with_name("topology_on_ipv6.py")


@pytest.mark.parametrize(("scheduler", "missing"), [("slurm", slurm_missing), ("spark", spark_missing)])
def test_a_topology_is_exact_over_ipv6_alone(scheduler: str, missing: Callable[[], str | None]) -> None:
    if why := missing():
        pytest.skip(why)
    with Hosts("one") as hosts:
        host = hosts["one"]
        host.run(["ip", "-4", "address", "flush", "dev", "eth0"], check=True)
        shown = host.run(["ip", "-4", "-o", "address"], check=True, capture_output=True, text=True).stdout
        assert [line.split()[1] for line in shown.splitlines()] == ["lo"]
        modules = [str(SCRIPT.parents[1] / part) for part in ("clusters", "integration")]
        path = os.pathsep.join([*modules, *filter(None, sys.path)])
        done = host.run(
            [sys.executable, str(SCRIPT), scheduler, str(host.directory / "run"), host.address6],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=800,
        )
        print(done.stdout)
        assert done.returncode == 0, done.stdout[-4000:]
