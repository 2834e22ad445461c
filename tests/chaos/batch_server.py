"""A process with one Spark session that runs batch jobs: a JSON command a line in, a JSON result a line out.

python batch_server.py MASTER
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from batch_program import job_at

from heronpy.errors import HeronError
from heronpy.pipeline import run, spark_session
from heronpy.pipeline.compaction import compact

CONF = {"spark.python.worker.memory": "1m", "spark.driver.memory": "512m"}
"""So little that everything spills."""


def done(command: dict[str, Any], master: str) -> dict[str, Any]:
    """Do as told; what an error says, and whether that is meant for people."""
    job = job_at(Path(command["directory"]), command["length_s"])
    try:
        if command["compact"]:
            compact(job, master=master, min_files=2, keep_replaced_s=0)
        report = run(job, master=master, until_ms=command["until_ms"], batches=command["batches"])
        return {"error": "", "batches": report.batches, "notes": report.notes}
    except (HeronError, OSError, MemoryError) as error:  # the CLI makes a line of these
        code = error.exit_code if isinstance(error, HeronError) else 1
        return {"error": type(error).__name__, "code": code, "line": str(error)}
    except Exception as error:
        return {"error": type(error).__name__, "code": 70, "line": str(error), "trace": traceback.format_exc()}


def main(master: str) -> None:
    answers = os.fdopen(os.dup(1), "w")  # what Spark prints goes elsewhere
    os.dup2(2, 1)
    with spark_session("campaign", master, CONF) as session:
        print(json.dumps({"scratch": session.sparkContext.getConf().get("spark.local.dir")}), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(done(json.loads(line), master)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
