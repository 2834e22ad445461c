"""A real YARN cluster on one machine: a ResourceManager, and a NodeManager for each host.

    with YarnCluster() as yarn:
        urllib.request.urlopen(f"{yarn.url}/ws/v1/cluster/info")

Hosts have addresses of their own (127.0.0.2, …) and a directory each; nothing is shared between them but this machine.
The ResourceManager keeps its state, so it can be killed and started again. There are two queues: `default`, and
`closed`, which only the user that runs this may use. `yarn_missing()` says why there is none on this machine.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import json
import os
import shutil
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import psutil

from heronpy.host import find_by_environment
from heronpy.testing._server_cluster import ServerCluster
from heronpy.testing._server_process import free_port

YARN_JARS_ENV: Final = "HERON_TEST_YARN_JARS"
HOST_ENV: Final = "HERON_TEST_YARN_HOST"
"""Which host a process belongs to."""
_JAVA = (
    "java",
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "-Djava.net.preferIPv4Stack=true",
)
_LOGGING = """\
log4j.rootLogger=INFO,A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%d %p %c{1} %m%n
"""
_QUEUES = {
    "root.queues": "default,closed,stopped,full",
    "root.acl_submit_applications": " ",
    "root.acl_administer_queue": " ",
    "root.default.capacity": "70",
    "root.default.maximum-capacity": "100",
    "root.default.user-limit-factor": "10",
    "root.default.acl_submit_applications": "*",
    "root.default.acl_administer_queue": "*",
    "root.closed.capacity": "10",
    "root.stopped.capacity": "10",
    "root.stopped.acl_submit_applications": "*",
    "root.stopped.state": "STOPPED",
    "root.full.capacity": "10",
    "root.full.acl_submit_applications": "*",
    "root.full.maximum-applications": "0",
    "maximum-am-resource-percent": "0.9",
    "resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
}


@functools.cache
def yarn_jars() -> Path | None:
    """The directory with YARN's jars: the environment's word, or the newest that `make yarn-server` has downloaded."""
    if given := os.environ.get(YARN_JARS_ENV):
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return max((cache / "heronpy").glob("yarn-[0-9]*"), default=None)


def yarn_missing() -> str | None:
    """Why no YARN can be started here, or None if it can."""
    if shutil.which("java") is None:
        return "no YARN: there is no java"
    if yarn_jars() is None:
        return f"no YARN: make yarn-server, or put the directory of its jars into {YARN_JARS_ENV}"
    return None


class YarnCluster(ServerCluster):
    """ResourceManager and NodeManagers."""

    up = ("RUNNING",)

    def __init__(
        self,
        hosts: int = 2,
        *,
        vcores: int = 16,
        memory_mb: int = 8192,
        env: Mapping[str, str] | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        """Describe them.

        Args:
            hosts: How many have a NodeManager.
            vcores: Of each.
            memory_mb: Of each.
            env: In the environment of all containers.
            labels: Of nodes, all of which the queue `default` may use; `label` gives one to a host.
        """
        super().__init__("hyn-", [f"127.0.0.{n + 2}" for n in range(hosts)])
        self.vcores, self.memory_mb, self._env, self._labels = vcores, memory_mb, env or {}, labels
        self._ports = {name: free_port() for name in ("rpc", "scheduler", "tracker", "admin", "web")}

    @property
    def url(self) -> str:
        """Of the ResourceManager's web services."""
        return f"http://127.0.0.1:{self._ports['web']}"

    @property
    def client_conf(self) -> Path:
        """Hadoop's configuration, as who submits needs it."""
        return self.directory / "master" / "conf"

    def applications(self) -> list[dict[str, Any]]:
        """What the ResourceManager says of all applications, the newest last."""
        found = self._get("apps")["apps"] or {"app": []}
        return sorted(found["app"], key=lambda app: str(app["id"]))

    def states(self) -> dict[str, str]:
        nodes = (self._get("nodes")["nodes"] or {"node": []})["node"]
        nodes.sort(key=lambda node: str(node["state"]) == "RUNNING")  # one that was lost is reported, too
        return {str(node["nodeHostName"]): str(node["state"]) for node in nodes}

    def start(self) -> None:
        self.start_master()
        for host in self.hosts:
            self.start_host(host)
        self.wait_up(*self.hosts)
        if self._labels:
            self._post(
                "add-node-labels", {"nodeLabelInfo": [{"name": name, "exclusivity": "true"} for name in self._labels]}
            )

    def label(self, host: str, label: str) -> None:
        """Give a label to a host, as an administrator does."""
        (node,) = (one for one in self._get("nodes")["nodes"]["node"] if one["nodeHostName"] == host)
        self._post("replace-node-to-labels", {"nodeToLabels": [{"nodeId": node["id"], "labels": [label]}]})

    def start_master(self) -> None:
        """Start the ResourceManager; after a kill it knows its applications again."""
        settings = {
            "yarn.resourcemanager.recovery.enabled": "true",
            "yarn.resourcemanager.store.class": (
                "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
            ),
            "yarn.resourcemanager.fs.state-store.uri": f"file://{self.directory}/master/state",
            "yarn.resourcemanager.am.max-attempts": "4",
            "yarn.scheduler.minimum-allocation-mb": "64",
            "yarn.scheduler.maximum-allocation-mb": str(self.memory_mb),
            "yarn.scheduler.maximum-allocation-vcores": str(self.vcores),
            "yarn.nm.liveness-monitor.expiry-interval-ms": "15000",
            "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "1000",
            "yarn.acl.enable": "true",
            "yarn.admin.acl": " ",
            "yarn.node-labels.enabled": str(bool(self._labels)).lower(),
            "yarn.node-labels.fs-store.root-dir": f"file://{self.directory}/master/labels",
        }
        state = self.directory / "master/state"  # it has the secrets of applications, and is for its owner alone
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._start("master", "resourcemanager.ResourceManager", settings, {})

    def start_host(self, host: str) -> None:
        where = self.directory / host
        given = {"MALLOC_ARENA_MAX": "4", HOST_ENV: str(where), **self._env}
        settings = {
            "yarn.nodemanager.hostname": host,
            "yarn.nodemanager.bind-host": host,
            "yarn.nodemanager.address": f"{host}:{free_port()}",
            "yarn.nodemanager.localizer.address": f"{host}:{free_port()}",
            "yarn.nodemanager.webapp.address": f"{host}:{free_port()}",
            "yarn.nodemanager.collector-service.address": f"{host}:{free_port()}",
            "yarn.nodemanager.local-dirs": str(where / "local"),
            "yarn.nodemanager.log-dirs": str(where / "userlogs"),
            "yarn.nodemanager.resource.memory-mb": str(self.memory_mb),
            "yarn.nodemanager.resource.cpu-vcores": str(self.vcores),
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
            "yarn.nodemanager.admin-env": ",".join(f"{name}={value}" for name, value in given.items()),
        }
        self._start(host, "nodemanager.NodeManager", settings, {HOST_ENV: str(where)})

    def kill_master(self) -> None:
        """End the ResourceManager with SIGKILL."""
        self._daemons.pop("master").kill()

    def processes(self, host: str) -> list[int]:
        found = {process.pid for process, _ in find_by_environment({HOST_ENV: f"{self.directory}/{host}"})}
        for pid in [*found]:  # the shells between a NodeManager and its containers have an environment of their own
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        return sorted(found)

    def _get(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/ws/v1/cluster/{what}", timeout=10) as reply:
            found: dict[str, Any] = json.loads(reply.read())
        return found

    def _post(self, what: str, body: Mapping[str, Any]) -> None:
        request = urllib.request.Request(
            f"{self.url}/ws/v1/cluster/{what}?user.name={getpass.getuser()}",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10):
            pass

    def _start(self, name: str, cls: str, settings: Mapping[str, str], ours: Mapping[str, str]) -> None:
        where, jars = self.directory / name, yarn_jars()
        assert jars is not None, yarn_missing()
        conf, logs = where / "conf", where / "logs"
        conf.mkdir(parents=True, exist_ok=True)
        logs.mkdir(exist_ok=True)
        master = {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.bind-host": "127.0.0.1",
            "yarn.resourcemanager.address": f"127.0.0.1:{self._ports['rpc']}",
            "yarn.resourcemanager.scheduler.address": f"127.0.0.1:{self._ports['scheduler']}",
            "yarn.resourcemanager.resource-tracker.address": f"127.0.0.1:{self._ports['tracker']}",
            "yarn.resourcemanager.admin.address": f"127.0.0.1:{self._ports['admin']}",
            "yarn.resourcemanager.webapp.address": f"127.0.0.1:{self._ports['web']}",
            "yarn.nodemanager.heartbeat.interval-ms": "200",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
        }
        core = {
            "hadoop.tmp.dir": str(where / "tmp"),
            "fs.defaultFS": "file:///",
            "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
            "hadoop.http.authentication.type": "simple",
            "hadoop.http.authentication.simple.anonymous.allowed": "true",
        }
        _write(conf / "core-site.xml", core)
        _write(conf / "yarn-site.xml", {**master, **settings})
        labelled = {f"{queue}.accessible-node-labels": ",".join(self._labels) for queue in ("root", "root.default")}
        labelled |= {f"{queue}.{label}.capacity": "100" for queue in labelled for label in self._labels}
        queues = {**_QUEUES, **(labelled if self._labels else {})}
        _write(conf / "capacity-scheduler.xml", {f"yarn.scheduler.capacity.{k}": v for k, v in queues.items()})
        (conf / "log4j.properties").write_text(_LOGGING)
        java = Path(os.path.realpath(shutil.which("java") or "java")).parents[1]
        homes = {f"HADOOP_{one}HOME": str(jars) for one in ("", "COMMON_", "HDFS_", "YARN_", "MAPRED_")}
        values = {"JAVA_HOME": str(java), "HADOOP_CONF_DIR": str(conf), **homes, **ours}
        command = [*_JAVA, f"-Dyarn.log.dir={logs}", f"-Dhadoop.log.dir={logs}", "-cp", f"{conf}:{jars}/*"]
        command = ["env", "-C", str(where), *command, f"org.apache.hadoop.yarn.server.{cls}"]
        self._daemon(name, values, command, where / "output.log")


def _write(path: Path, values: Mapping[str, str]) -> None:
    properties = (f"<property><name>{k}</name><value>{escape(v)}</value></property>\n" for k, v in values.items())
    path.write_text(f"<configuration>\n{''.join(properties)}</configuration>\n")
