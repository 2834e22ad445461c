"""Topologies on a Spark standalone cluster: every container is a job of one task, which runs as long as the container.

Standalone has no cluster mode for Python, so the Spark driver is a process of its own (`heron_scheduler.spark.driver`),
started by submit, with a systemd unit to take over. It does what a node of the state manager asks for, and says there
what runs (`heron_scheduler.driven`): so any machine can command the topology. On the hosts a supervisor, of the
standard library alone, starts and ends the container (`container_task`). See docs/spark-scheduler.md.
"""

from heron_scheduler.spark._config import SparkConfig
from heron_scheduler.spark._preflight import check_cores, check_driver_host, check_master
from heron_scheduler.spark._scheduler import SparkScheduler
from heron_scheduler.spark._task import container_task

__all__ = [
    "SparkConfig",
    "SparkScheduler",
    "check_cores",
    "check_driver_host",
    "check_master",
    "container_task",
]
