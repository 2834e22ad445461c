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
