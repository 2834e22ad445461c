"""What is checked before a topology is submitted: what Spark itself would leave waiting, or report after minutes."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import socket
import sys
import urllib.request
from collections.abc import Collection
from typing import Any

from heron_scheduler.spark._config import PREFIX, SparkConfig
from heronpy.errors import ConfigError, UnavailableError

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
_ANSWER_S = 15.0
"""After which a master whose web UI has taken a connection counts as one that hangs."""
_BYTES_MAX = 16 << 20


def check_driver_host() -> None:
    """Refuse to start a driver on a machine that cannot run one.

    Raises:
        ConfigError: it has no pyspark, or no Java.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(f"pyspark is not installed in {sys.prefix}: install the version of the Spark cluster there")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise ConfigError("there is no Java on this machine, and JAVA_HOME is not set: the Spark driver needs it")


def check_master(config: SparkConfig) -> None:
    """Raises UnavailableError: no master answers."""
    why = ""
    for host, port in config.masters:
        try:
            with socket.create_connection((host, port), timeout=_TIMEOUT_S):
                return
        except OSError as e:
            why = e.strerror or str(e)
    raise UnavailableError(f"no Spark master answers at {config.master}: {why}; see {PREFIX}master")


def check_cores(config: SparkConfig, cpus: Collection[int]) -> None:
    """Refuse containers for which there are no cores. Nothing is said where the master's web UI does not answer.

    Raises:
        ConfigError: no worker of the cluster is large enough for one of them.
        UnavailableError: there are no workers, or too few free cores; or the master hangs.
    """
    try:
        workers = [worker for worker in _state(config)["workers"] if worker["state"] == "ALIVE"]
        sizes = [(int(worker["cores"]), int(worker["coresfree"])) for worker in workers]
    except TimeoutError:  # else Spark would say so after minutes
        raise UnavailableError(
            f"the Spark master {config.master} hangs: {config.webui_url} takes connections and does not answer; "
            f"see {PREFIX}webui"
        ) from None
    except UnavailableError as e:
        log.info("%s: whether there are cores is not known", e)
        return
    if not sizes:
        raise UnavailableError(f"the Spark master {config.master} has no workers: start some, or set {PREFIX}master")
    if max(cpus) > (largest := max(cores for cores, _ in sizes)):
        raise ConfigError(
            f"a container asks for {max(cpus)} cores, and the largest worker of Spark has {largest}: set "
            "topology.container.cpu, or topology.tmanager.cpu for container 0"
        )
    left = [free for _, free in sizes]
    for wanted in sorted(cpus, reverse=True):  # first fit, decreasing: Spark places them in its own order
        place = next((i for i, free in enumerate(left) if free >= wanted), None)
        if place is None:
            raise UnavailableError(
                f"the containers ask for {sum(cpus)} cores, and the workers of Spark have {sum(f for _, f in sizes)} "
                "free ones: ask for fewer (topology.container.cpu, topology.stmgrs), or kill what has them"
            )
        left[place] -= wanted


def master_state(config: SparkConfig) -> dict[str, Any]:
    """What the web UI of the master says.

    Raises:
        UnavailableError: it does not answer.
    """
    try:
        return _state(config)
    except TimeoutError as e:
        raise UnavailableError(f"the web UI of the Spark master, {config.webui_url}, does not answer: {e}") from e


def _state(config: SparkConfig) -> dict[str, Any]:
    """Raises TimeoutError: what has taken the connection does not answer. And UnavailableError, like `master_state`."""
    url = f"{config.webui_url}/json/"
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as reply:
            found = json.loads(reply.read(_BYTES_MAX))
        if not isinstance(found, dict) or "workers" not in found:
            raise UnavailableError(f"{url} is not the web UI of a Spark master: see {PREFIX}webui")
    except TimeoutError:  # of the answer: urllib wraps that of a connection, which a firewall may swallow
        raise
    except (OSError, ValueError) as e:
        raise UnavailableError(f"the web UI of the Spark master, {url}, does not answer: {e}") from e
    return found
