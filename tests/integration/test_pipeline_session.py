"""A Spark session says nothing that nobody asked for, and its workers begin with everything imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark]

SCRIPT = """
import sys
from heronpy.pipeline import spark_session

def loaded(_rows):
    import os, glob
    path = [entry for entry in sys.path if entry.endswith(("pyspark.zip", "-src.zip"))]
    print("from a worker", file=sys.stderr, flush=True)
    yield ("heronpy.pipeline.execute" in sys.modules, path, "pyarrow" in sys.modules)

with spark_session("quiet", "local[1]") as session:
    print(session.sparkContext.parallelize([1], 1).mapPartitions(loaded).collect())
    session._jvm.java.lang.System.err.println("a real error")
"""


@pytest.mark.long
def test_standard_error_has_what_workers_and_the_jvm_say_and_no_chatter(tmp_path: Path):
    script = tmp_path / "quiet.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[(True, [], False)]\n"
    assert sorted(done.stderr.splitlines()) == ["a real error", "from a worker"]


TWO = """
import threading
from heronpy.pipeline import spark_session

entered, left = threading.Barrier(2), threading.Event()
counts = []

def first():
    with spark_session("first", "local[1]") as session:
        entered.wait()
        counts.append(session.sparkContext.parallelize(range(3), 1).count())
    left.set()

def second():
    with spark_session("second", "local[1]") as session:
        entered.wait()
        left.wait()
        counts.append(session.sparkContext.parallelize(range(4), 1).count())

threads = [threading.Thread(target=run) for run in (first, second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
from pyspark import SparkContext
print(counts, SparkContext._gateway)
"""


@pytest.mark.long
def test_jobs_of_two_threads_share_a_session_that_goes_with_the_last(tmp_path: Path):
    script = tmp_path / "two.py"
    script.write_text(TWO)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr, done.returncode) == ("[3, 4] None\n", "", 0)


IN_THE_BLOCK = """
from heronpy.pipeline import spark_session

for fails in (lambda session: session.sql("SELECT nothing FROM nowhere"), lambda session: open("/nowhere/at-all")):
    try:
        with spark_session("own", "local[1]") as session:
            fails(session)
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.long
def test_what_fails_in_a_users_block_keeps_its_kind(tmp_path: Path):
    script = tmp_path / "own.py"
    script.write_text(IN_THE_BLOCK)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("AnalysisException\nFileNotFoundError\n", 0), done.stderr
