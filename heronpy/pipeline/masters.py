"""Spark's masters: which have their executors on other machines, and what is refused then before anything starts.

What a run does with executors elsewhere is said by settings beside Spark's own (`conf=`, `--conf`): Spark ignores them,
and whatever hands on Spark's settings hands on these.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heronpy.errors import ConfigError, UnavailableError, UsageError
from heronpy.filesystem import Location
from heronpy.pipeline.memory import LIMIT_KEY, limit_of

SHARED_DISK_KEY = "spark.heron.sharedDisk"
"""`true`: executors have the directories of this machine, at the same paths."""
SHIP_PACKAGES_KEY = "spark.heron.shipPackages"
"""`true`: the packages that the program and heronpy import are sent to executors, which need only a Python."""
START_TIMEOUT_KEY = "spark.heron.startTimeout"
"""Seconds in which Spark must have started, and after that executors have answered."""
START_TIMEOUT_S = 120.0
_EXECUTORS_S = 30.0
"""How long Spark waits for executors by itself, before it has started."""
_CONNECT_S = 5.0
_LOCAL_HOST = re.compile(r"spark://(127(\.\d+){3}|localhost)(:\d+)?$")
_LOCAL_FORM = re.compile(
    r"local(\[(\*|0*[1-9]\d{0,8})(\s*,\s*\d{1,9})?\])?|local-cluster\[\s*\d{1,9}\s*,\s*\d{1,9}\s*,\s*\d{1,9}\s*\]"
)
_FORMS = "local[*], local[4], spark://host:7077, yarn or k8s://https://host:6443"


def is_local(master: str) -> bool:
    """Whether a master's workers run on this machine: nothing listens beyond it then."""
    return master.startswith("local") or _LOCAL_HOST.match(master) is not None


def master_in_use(master: str) -> str:
    """The master that a run will have: a session that exists already is used, whatever was asked for."""
    if "pyspark" not in sys.modules:
        return master
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return master if context is None else str(context.master)


def import_path() -> list[str]:
    """Where Spark's workers look for modules beside their own places: where this process does, if they run here."""
    return sys.path if is_local(master_in_use("local")) else []


def start_timeout_s(conf: Mapping[str, str]) -> float:
    """`spark.heron.startTimeout` of some settings.

    Raises:
        ConfigError: it is not a number of seconds.
    """
    text = conf.get(START_TIMEOUT_KEY, "")
    try:
        seconds = float(text or START_TIMEOUT_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ConfigError(f"{START_TIMEOUT_KEY} must be a number of seconds, not {text!r}")
    return seconds


def is_set(conf: Mapping[str, str], key: str) -> bool:
    """Whether a setting is `true`.

    Raises:
        ConfigError: it is neither `true` nor `false`.
    """
    value = conf.get(key, "false").lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, not {conf[key]!r}")
    return value == "true"


def check_request(master: str, conf: Mapping[str, str], places: Mapping[str, Location]) -> None:
    """Refuse what is wrong with where something is to run, before anything is read or started.

    Args:
        master: Spark's, of a session that does not exist yet.
        conf: its settings.
        places: see `check_shared`.

    Raises:
        ConfigError: a setting has a value that it cannot have.
        UsageError: there is no such master, or see `check_shared`.
    """
    in_use = master_in_use(master)
    if in_use == master:
        _servers(master)
    _check_conf(conf)
    check_shared(in_use, conf, places)


def check_master(master: str) -> None:
    """Refuse in seconds what Spark would try for minutes, or for ever.

    Raises:
        UsageError: it is not the URL of a master.
        UnavailableError: nothing listens there, or Hadoop's configuration, which names YARN's, is not there.
    """
    if master == "yarn":
        _check_hadoop()
    elif servers := _servers(master):
        _check_any(master, servers)


def _servers(master: str) -> list[tuple[str, int]]:
    """The hosts and ports that a master's URL names.

    Raises:
        UsageError: it is not the URL of a master.
    """
    if master == "yarn" or _LOCAL_FORM.fullmatch(master):
        return []
    if master.startswith("spark://"):
        return [_host_port(master, one) for one in master.removeprefix("spark://").split(",")]
    if master.startswith("k8s://"):
        url = master.removeprefix("k8s://")
        return [_host_port(master, url if "://" in url else f"https://{url}")]
    raise UsageError(f"{master!r} is not a master of Spark: use {_FORMS}")


def _check_conf(conf: Mapping[str, str]) -> None:
    """Refuse settings that Spark takes for something else, or finds wrong in the middle of a job."""
    if "spark.master" in conf:
        raise ConfigError("spark.master is not a setting: name the master with --master")
    start_timeout_s(conf)
    is_set(conf, SHARED_DISK_KEY)
    is_set(conf, SHIP_PACKAGES_KEY)
    limit_of(conf.get(LIMIT_KEY, ""))


def _check_hadoop() -> None:
    found = [os.environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
    if not found:
        raise UnavailableError("YARN is found by Hadoop's configuration: set HADOOP_CONF_DIR to its directory")
    if not any((Path(directory) / "yarn-site.xml").is_file() for directory in found):
        raise UnavailableError(f"YARN is found by yarn-site.xml, and there is none in {found[0]} (HADOOP_CONF_DIR)")


def _host_port(master: str, text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(text if "://" in text else f"spark://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts_default := {"https": 443, "http": 80}.get(text.partition("://")[0]):
        port = port or parts_default
    if not host or not port:
        raise UsageError(f"{master!r} names no host and port: use {_FORMS}")
    return host, port


def _check_any(master: str, places: Iterable[tuple[str, int]]) -> None:
    why = ""
    for place in places:
        try:
            with socket.create_connection(place, timeout=_CONNECT_S):
                return
        except OSError as e:
            why = e.strerror or str(e)
    raise UnavailableError(f"no master of Spark answers at {master}: {why}")


def check_shared(master: str, conf: Mapping[str, str], places: Mapping[str, Location]) -> None:
    """Refuse files of this machine where executors are on others, unless they share the disk.

    Args:
        master: Spark's.
        conf: its settings.
        places: what is where, for the error: `{"the archive events": …}`.

    Raises:
        UsageError: something is in a directory of this machine.
    """
    if is_local(master) or is_set(conf, SHARED_DISK_KEY):
        return
    for what, place in places.items():
        if isinstance(place, Path):
            raise UsageError(
                f"{what} is in {place}, a directory of this machine, which executors of {master} do not have: put it "
                "into a store (s3://bucket/prefix, hdfs://host:port/path), or say --shared-disk if they share it"
            )


def cluster_defaults(master: str, conf: Mapping[str, str]) -> dict[str, Any]:
    """Spark's settings for a master on other machines, where its own settings are `conf`.

    Raises:
        ConfigError: see `start_timeout_s`.
    """
    if master.startswith("k8s://"):
        wait_s = min(_EXECUTORS_S, start_timeout_s(conf) / 4)
        return {
            # Spark 4.3 takes the driver for a pod: executors would go to where it binds, whatever spark.driver.host is.
            "spark.kubernetes.executor.useDriverPodIP": "false",
            # Where it waits for no longer, the pods can be asked what they wait for.
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{wait_s * 1000:.0f}ms",
        }
    if master != "yarn":
        return {}
    # Hadoop's own patience is a quarter of an hour.
    prefix = "spark.hadoop."
    return {
        f"{prefix}yarn.resourcemanager.connect.max-wait.ms": "10000",
        f"{prefix}yarn.resourcemanager.connect.retry-interval.ms": "2000",
        f"{prefix}ipc.client.connect.max.retries": "2",
    }


def python_of_executors(master: str, conf: Mapping[str, str]) -> str:
    """The Python that Spark's workers run: this one, if they have this machine's disk."""
    given = conf.get("spark.pyspark.python", "")
    if is_local(master):
        return sys.executable
    if given or os.environ.get("PYSPARK_PYTHON"):
        return given or os.environ["PYSPARK_PYTHON"]
    if is_set(conf, SHARED_DISK_KEY):
        return sys.executable
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"
