"""A process with one Spark session that runs batch jobs: a JSON command a line in, a JSON result a line out.

python batch_server.py MASTER    with `inline` each job runs in a process of its own, without Spark: `inline_spark.py`
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, TextIO

from batch_program import job_at

from heronpy.errors import HeronError
from heronpy.filesystem import location
from heronpy.pipeline import compaction, run, running, spark_session
from heronpy.pipeline.compaction import compact

INLINE = "inline"
KILLED = {"error": "killed", "code": -9, "line": ""}
CRASHED = {"error": "crashed", "code": 70, "line": ""}
CONF = {
    "spark.python.worker.memory": "1m",
    "spark.driver.memory": "512m",
    "spark.executorEnv.AWS_SDK_UA_APP_ID": "task",
}
"""So little that everything spills; and tasks say in requests to a store what they are."""


def done(command: dict[str, Any], master: str) -> dict[str, Any]:
    """Do as told; what an error says, and whether that is meant for people."""
    job = job_at(location("the job", command["directory"]), command["length_s"])
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
    if master == INLINE:
        inline(answers)
        return
    with spark_session("campaign", master, CONF) as session:
        print(json.dumps({"scratch": session.sparkContext.getConf().get("spark.local.dir")}), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(done(json.loads(line), master)), file=answers, flush=True)


def inline(answers: TextIO) -> None:
    """Fork a process for each job; it may be killed, and then nothing is answered but that."""
    import boto3
    from botocore.loaders import Loader
    from inline_spark import inline_session

    running.spark_session = compaction.spark_session = inline_session  # type: ignore[assignment]
    load, loaded = Loader.load_service_model, {}

    def load_once(loader: Any, *what: Any, **more: Any) -> Any:
        key = (*what, *more.values())
        if key not in loaded:
            loaded[key] = load(loader, *what, **more)
        return loaded[key]

    Loader.load_service_model = load_once
    boto3.session.Session().client("s3", region_name="us-east-1")  # so that no job has to parse what S3 is
    print(json.dumps({"scratch": "/nonexistent"}), file=answers, flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                print(json.dumps(done(json.loads(line), "local[1]")), file=answers, flush=True)  # it is not used
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        if status:
            print(json.dumps(KILLED if os.WIFSIGNALED(status) else CRASHED), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
