"""Batch runs on executors that share no disk with the driver and have no heronpy: a real Spark standalone cluster."""

from __future__ import annotations

import glob
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from heronpy.archive import ArchiveWriter
from heronpy.filesystem import location
from heronpy.pipeline import ViewReader
from heronpy.streamlet import Sum
from heronpy.testing import eventually_sync
from heronpy.testing.hosts import hosts_missing
from heronpy.testing.servers import S3Server, s3_missing, spark_missing
from heronpy.testing.spark_hosts import SparkHosts, make_python

MISSING = spark_missing() or s3_missing() or hosts_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

PYTHON = "/tmp/packages/bin/python"
BARE_PYTHON = "/tmp/bare/bin/python"
BATCHES = 6
PER_BATCH = 400
WITHIN_S = 600.0
PROGRAM = '''
import os
import sys
import time

from heronpy.connectors import ListSource
from heronpy.stores import SqliteStore
from heronpy.streamlet import Builder, Config, Runner, Sum
from splitting import words_of


class Line:
    """Archived by pickling: whoever reads it imports this script."""

    def __init__(self, text):
        self.text = text


def counted(word):
    if os.path.exists("/tmp/hold"):
        open("/tmp/held", "w").close()
        while os.path.exists("/tmp/hold"):
            time.sleep(0.05)
    return word, 1


if __name__ == "__main__":
    builder = Builder()
    lines = builder.new_source(ListSource(["none"])).archive(codec="pickle")
    lines.flat_map(words_of).map(counted).to_store("counts", Sum(), SqliteStore(sys.argv[2]))
    config = Config()
    config.set_pipeline(sys.argv[1], batch_length=10)
    Runner().run("Counting", config, builder)
'''
BESIDE = """
def words_of(line):
    import suffixes  # imported only where it runs

    return [word + suffixes.SUFFIX for word in line.text.split()]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHosts]:
    with SparkHosts("one", "two", directory=tmp_path_factory.mktemp("spark")) as cluster:
        for host in cluster.hosts:
            assert make_python(host, "packages", packages=True) == PYTHON
            assert make_python(host, "bare", packages=False) == BARE_PYTHON
        yield cluster


class Place:
    """A script, its archive in S3, and commands with a home of their own."""

    _numbers = itertools.count()

    def __init__(self, cluster: SparkHosts, root: Path) -> None:
        self.cluster, self.root = cluster, root
        self.url = location("it", cluster.s3.url("jobs")) / f"job{next(self._numbers)}"
        (root / "counting.py").write_text(PROGRAM)
        (root / "splitting.py").write_text(BESIDE)
        (root / "suffixes.py").write_text('SUFFIX = "!"\n')

    def fill(self) -> dict[int, dict[str, int]]:
        """Archive lines, some twice, in several files; what is to be counted of them."""
        expected: dict[int, dict[str, int]] = {}
        for batch in range(BATCHES):
            words = Counter(f"w{n % 7}!" for n in range(PER_BATCH)) + Counter({"all!": PER_BATCH})
            expected[batch] = dict(words)
            for task, numbers in (("a", range(PER_BATCH)), ("b", range(0, PER_BATCH, 10))):
                writer = ArchiveWriter(
                    self.url / "archive" / "events",
                    task=f"{task}-{batch}",
                    batch_length_ms=10_000,
                    codec="pickle",
                    dead_letter=_no_letter,
                )
                for n in numbers:
                    writer.add(f"{batch}-{n}", batch * 10_000 + n, LINE(f"w{n % 7} all"))
                writer.commit()
                writer.close()
        return expected

    def start(self, python: Path | str, *options: str, url: str | None = None, **conf: str) -> subprocess.Popen[str]:
        """`heron pipeline run` on the cluster; executors run that Python."""
        words = ["run", "--json", "--until", str(BATCHES * 10), *self.cluster.conf(str(python), **conf), *options]
        program = ["counting.py", url or self.url.url, str(self.root / "live")]
        return subprocess.Popen(
            [sys.executable, "-c", "from heronpy.cli import main; main()", "pipeline", *words, *program],
            cwd=self.root,
            env={**os.environ, "HERON_HOME": str(self.root / "home"), "XDG_CACHE_HOME": str(self.root)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, python: Path | str, *options: str, **conf: str) -> tuple[int, str, str]:
        """The same to its end: exit code, standard output and error."""
        return ended(self.start(python, *options, **conf))

    def counts(self) -> dict[int, dict[str, int]]:
        """What is in the view."""
        reader = ViewReader(self.url, "counts", Sum())
        return {batch: dict(reader.items(batch)) for batch in reader.batches()}


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    return process.returncode, out, err


def _no_letter(where: str, row: Any, reason: str) -> None:
    raise AssertionError((where, row, reason))


def _line() -> Any:
    """The class of the script, as a topology's instance would pickle it."""
    module = ModuleType("counting")
    exec("class Line:\n    def __init__(self, text):\n        self.text = text\n", module.__dict__)
    sys.modules["counting"] = module
    return module.Line


LINE = _line()


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
