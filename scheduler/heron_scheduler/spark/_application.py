"""The application of a topology on Spark: a SparkContext, and a job for each container."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

from heron_scheduler.spark._config import SparkConfig
from heron_scheduler.spark._task import container_task
from heronpy.errors import UnavailableError
from heronpy.runtime import Launch

_MAX_FAILURES = 20
"""Of a task before its job fails; the driver runs it again then. More would let a host without Python spin for long."""
_JVM_END_S = 20.0


def worker_python(config: SparkConfig, package_python: str) -> str:
    """The Python of Spark's workers."""
    kind, _, path = package_python.partition(":")
    return config.python or (f"{path.rstrip('/')}/bin/python" if kind == "venv" else "python3")


class Application:
    """Methods may be called by any thread."""

    def __init__(self, launch: Launch, config: SparkConfig, *, bind: str, advertise: str) -> None:
        """Returns when the master has accepted it.

        Raises:
            UnavailableError: it has not, or Spark cannot be started here; one line.
        """
        os.environ["PYSPARK_PYTHON"] = worker_python(config, launch.config.package.python)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        from pyspark import SparkConf, SparkContext  # optional, and heavy

        values = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **config.conf,
            "spark.driver.host": f"[{advertise}]" if ":" in advertise else advertise,
            "spark.driver.bindAddress": bind,
            "spark.task.maxFailures": str(_MAX_FAILURES),
            "spark.speculation": "false",
            "spark.dynamicAllocation.enabled": "false",
        }
        conf = SparkConf().setMaster(config.master).setAppName(application_name(launch)).setAll([*values.items()])
        try:
            self._context: Any = SparkContext(conf=conf)
        except Exception as e:  # py4j's errors have Java's stack as their text
            lines = [line.strip() for line in str(e).splitlines() if line.strip()] or [type(e).__name__]
            cause = next((line for line in lines if "Exception" in line or "Error" in line), lines[0])
            raise UnavailableError(f"Spark does not start: {cause[:300]}") from e
        self.id: str = self._context.applicationId
        self._topology = launch.topology

    @property
    def executors(self) -> int:
        """How many of Spark's executors take tasks."""
        return int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is in it

    @property
    def ended(self) -> bool:
        """Whether Spark has ended it: by the master's UI, say."""
        return bool(self._context._jsc.sc().isStopped())

    def run(self, container: int, run: str, cpus: int, payload: dict[str, Any]) -> dict[str, str]:
        """Run a container until it ends. Returns how, in the supervisor's words.

        Raises:
            Exception: of py4j: the job was cancelled, or has failed as often as it may.
        """
        name = f"container {container} of {self._topology}"
        self._context.setJobGroup(run, name, False)
        rdd = self._context.parallelize([container], 1).mapPartitions(
            container_task(payload, f"heron-{payload['topology_id']}-{container}")
        )
        if cpus > 1:
            from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

            rdd = rdd.withResources(ResourceProfileBuilder().require(TaskResourceRequests().cpus(cpus)).build)
        (outcome,) = rdd.collect()
        found: dict[str, str] = outcome
        return found

    def cancel(self, run: str) -> None:
        """Kill a run's task, if it has one, and have `run` fail. What the task has started ends gracefully."""
        self._context.cancelJobGroup(run)

    def stop(self) -> None:
        """End it, and all that it runs, and Spark's JVM here. Returns when the master knows."""
        gateway = self._context._gateway
        self._context.stop()
        gateway.shutdown()
        jvm = gateway.proc
        jvm.stdin.close()  # by which it ends
        try:
            jvm.wait(_JVM_END_S)
        except subprocess.TimeoutExpired:
            jvm.kill()


def application_name(launch: Launch) -> str:
    """By which the master's UI shows it."""
    return f"heron {launch.topology_id}"


def whole_cores(cpu: float) -> int:
    """Spark counts whole cores."""
    return max(1, math.ceil(cpu))
