"""Executors that are pods: why there are none.

Spark ends an application after some pods that cannot be made or that end, and waits for ever for those that cannot run.
It says why in its log alone, or not at all: here that is read from its log and from the pods.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from pyspark import SparkContext

LOG_KEY = "spark.heron.kubernetesLog"
"""The file with what Spark says of its pods. Set by heronpy."""
_IMAGE_KEYS = ("spark.kubernetes.executor.container.image", "spark.kubernetes.container.image")
_LOG_CONFIG = """\
appender.pods.type = File
appender.pods.name = pods
appender.pods.fileName = {file}
appender.pods.layout.type = PatternLayout
appender.pods.layout.pattern = %m: %ex{{short.message}}%n
logger.pods.name = org.apache.spark.scheduler.cluster.k8s
logger.pods.level = error
logger.pods.additivity = false
logger.pods.appenderRef.pods.ref = pods
logger.lost.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.lost.level = error
logger.lost.additivity = false
logger.lost.appenderRef.pods.ref = pods
# Of an application that is refused, its own things cannot be looked for in the end, either.
logger.removing.name = org.apache.spark.util.Utils
logger.removing.level = off
logger.template.name = org.apache.spark.deploy.k8s.KubernetesUtils
logger.template.level = off
"""
_SAID = re.compile(r"Message: (.*?)\.? Received status:", re.DOTALL)
_FAILURES = re.compile(r"Max number of executor failures \((\d+)\) reached")
_EXIT = re.compile(r"exited with exit code (\d+(?:\([^)]*\))?)")
_WORDS_MAX = 300
_ANSWER_S = 20.0


def is_kubernetes(master: str) -> bool:
    """Whether executors of a master are pods."""
    return master.startswith("k8s://")


def check_image(conf: Mapping[str, str]) -> None:
    """Raise UsageError unless settings name the image of executors: Spark would ask for it once a second, for ever."""
    if not any(conf.get(key) for key in _IMAGE_KEYS):
        raise UsageError(f"executors on Kubernetes need an image with Spark: --conf {_IMAGE_KEYS[1]}=IMAGE")


def log_config(log: Path) -> str:
    """Lines of a log4j configuration: what Spark says of its pods goes into a file."""
    return _LOG_CONFIG.format(file=log)


def api_words(text: str) -> str:
    """What the API server says in an error of Spark's client, or all of it; one line."""
    found = _SAID.search(text)
    return _one_line(found[1] if found else text)


def why_ended(log: str) -> str:
    """Why Spark has ended an application, from what it said of its pods; empty: it has not."""
    failures = _FAILURES.search(log)
    if failures is None:
        return ""
    if refused := _SAID.findall(log):
        return f"its executors are refused: {_one_line(refused[-1])}"
    hint = "keep their pods for their logs with --conf spark.kubernetes.executor.deleteOnTermination=false"
    if codes := _EXIT.findall(log):
        return f"more than {failures[1]} executors have failed, the last with exit code {codes[-1]}: {hint}"
    return (
        "its executors fail when they start, perhaps because they do not reach this driver (spark.driver.host), or for "
        f"what their image lacks: {hint}"
    )


def why_waiting(pods: Sequence[Mapping[str, Any]]) -> str:
    """What most of the executors' pods wait for, by their status; empty: for nothing that Kubernetes knows of."""
    reasons = Counter(reason for pod in pods if (reason := _waits_for(pod.get("status", {}))))
    if not reasons:
        return ""
    ((reason, count),) = reasons.most_common(1)
    return f"{count} of {len(pods)} executor pods are waiting: {_one_line(reason)}"


def _waits_for(status: Mapping[str, Any]) -> str:
    if status.get("phase") != "Pending":
        return ""
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        if waiting := container.get("state", {}).get("waiting"):
            return ": ".join(filter(None, (waiting.get("reason", "Waiting"), waiting.get("message"))))
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return ": ".join(filter(None, (condition.get("reason", "Unschedulable"), condition.get("message"))))
    return "Pending"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_WORDS_MAX]


def waiting(sc: SparkContext) -> str:
    """`why_waiting` for the executors of an application; empty also where the API server does not answer in time."""
    found: list[str] = []

    def ask() -> None:
        with contextlib.suppress(Exception):  # whatever fails here, that no executor comes is said all the same
            found.append(why_waiting(_pods(sc)))

    # Spark's client, as that has the credentials. It retries for longer than an error message may take.
    asking = threading.Thread(target=ask, name="executor pods", daemon=True)
    asking.start()
    asking.join(_ANSWER_S)
    return found[0] if found else ""


def _pods(sc: Any) -> list[dict[str, Any]]:
    client = sc._jsc.sc().schedulerBackend().kubernetesClient()
    namespaced = client.pods().inNamespace(sc.getConf().get("spark.kubernetes.namespace", "default"))
    labelled = namespaced.withLabel("spark-app-selector", sc.applicationId).withLabel("spark-role", "executor")
    text = sc._jvm.io.fabric8.kubernetes.client.utils.Serialization.asJson(labelled.list())
    return list(json.loads(text)["items"])


@contextlib.contextmanager
def ended_by_spark(sc: SparkContext) -> Iterator[None]:
    """Where Spark ends the application because of its pods, raise that instead of what fails for it.

    Raises:
        UnavailableError: it has; says why.
    """
    master = str(sc.master)
    log = sc.getConf().get(LOG_KEY, "") if is_kubernetes(master) else ""
    try:
        yield
    except Exception as e:
        if log and (why := why_ended(read_log(Path(log)))):
            raise UnavailableError(f"{master} has ended the application: {why}") from e
        raise


def read_log(log: Path) -> str:
    """What Spark has said of its pods."""
    return log.read_text(errors="replace") if log.exists() else ""
