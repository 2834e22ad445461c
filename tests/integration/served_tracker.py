"""A Tracker that serves a topology with known numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tracker_topology import NUMBERS, Tracked

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

TOTAL = 2 * NUMBERS
SPOUTS = ("container_1_numbers_1", "container_1_numbers_2")
HERON = [sys.executable, "-m", "heronpy.cli"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster({"heron.metrics.export.interval.ms": 500}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topology(cluster: LocalCluster) -> TopologyHandle:
    return cluster.submit(Tracked, name="tracked").wait_running()


class Served:
    """`heron tracker` as a process."""

    def __init__(self, home: Path, *args: str) -> None:
        self.process = subprocess.Popen(
            [*HERON, "tracker", "--port", "0", "--json", *args],
            env={**os.environ, "HERON_HOME": str(home)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        assert ready["pid"] == self.process.pid
        self.url: str = ready["url"]
        self.login_url: str = ready["login_url"]
        self.auth = {"authorization": f"Bearer {Path(ready['token_file']).read_text().strip()}"}
        self.http = httpx.Client(base_url=self.url, timeout=120, headers=self.auth)

    def stop(self) -> int:
        self.http.close()
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(300)


@pytest.fixture(scope="module")
def served(cluster: LocalCluster, topology: TopologyHandle) -> Iterator[Served]:
    served = Served(cluster.home)
    yield served
    assert served.stop() == 0


class Asking:
    """Asks for one topology; every answer must be JSON and tell how long it took."""

    def __init__(self, served: Served, topology: TopologyHandle) -> None:
        launch = topology.launch
        self.http = served.http
        self.place = f"/topologies/{launch.cluster}/{launch.role}/{launch.environ}/{launch.topology}"
        self.common = {"cluster": launch.cluster, "environ": launch.environ, "topology": launch.topology}

    def __call__(self, path: str, /, *, status: int = 200, **params: Any) -> Any:
        def answer() -> httpx.Response:
            response = self.http.get(f"/topologies/{path}", params={**self.common, **params})
            # On a busy machine a Topology Master may not answer at once.
            assert status == 503 or response.status_code != 503, response.text
            return response

        response = eventually_sync(answer)
        assert response.status_code == status, response.text
        assert float(response.headers["x-process-time"]) >= 0
        return response.json()

    def post(self, path: str, **params: Any) -> Any:
        response = self.http.post(f"/topologies/{path}", params={**self.common, **params})
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture
def ask(served: Served, topology: TopologyHandle) -> Asking:
    return Asking(served, topology)
