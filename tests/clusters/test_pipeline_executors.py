"""Batch runs on executors that share no disk with the driver and have no heronpy: a real Spark standalone cluster."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting_job import BATCHES, PER_BATCH, Place, ended

from heronpy.testing import eventually_sync
from heronpy.testing.hosts import hosts_missing
from heronpy.testing.servers import S3Server, s3_missing, spark_missing
from heronpy.testing.spark_hosts import SparkHosts, make_python

MISSING = spark_missing() or s3_missing() or hosts_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

PYTHON = "/tmp/packages/bin/python"
BARE_PYTHON = "/tmp/bare/bin/python"
WITHIN_S = 600.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHosts]:
    with SparkHosts("one", "two", directory=tmp_path_factory.mktemp("spark")) as cluster:
        for host in cluster.hosts:
            assert make_python(host, "packages", packages=True) == PYTHON
            assert make_python(host, "bare", packages=False) == BARE_PYTHON
        yield cluster


@pytest.fixture
def place(cluster: SparkHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    return Place(cluster, tmp_path)


def test_counts_are_exact_though_an_executor_is_killed_and_none_has_heronpy(cluster: SparkHosts, place: Place) -> None:
    expected = place.fill()
    one = cluster.hosts["one"]
    (one.tmp / "hold").touch()
    process = place.start(PYTHON)

    def held() -> None:
        if process.poll() is not None:
            pytest.fail(f"it ended: {process.communicate()}")
        assert (one.tmp / "held").exists()

    try:
        eventually_sync(held, within_s=WITHIN_S)
        cluster.kill_executor(one)
    finally:
        (one.tmp / "hold").unlink()
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["elements"], report["duplicates"]) == (BATCHES * PER_BATCH, BATCHES * PER_BATCH // 10)
    assert place.counts() == expected
    for host in cluster.hosts:
        assert glob.glob(f"{host.directory}/work/app-*/*/heron-code-*/heronpy/pipeline/execute.py"), host.name


def test_a_python_without_packages_is_sent_them(cluster: SparkHosts, place: Place) -> None:
    expected = place.fill()
    code, out, err = place.run(BARE_PYTHON, "--ship-packages")
    assert (code, err) == (0, ""), out
    assert place.counts() == expected
