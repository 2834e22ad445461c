"""A real HDFS on one machine: a NameNode and a DataNode.

    with HdfsCluster(tmp_path) as hdfs:
        open_storage(hdfs.url("checkpoints"))  # in a process that has `hdfs.env`

PyArrow reaches HDFS by Hadoop's libhdfs, which starts a JVM in the process, by the environment that `env` has.
`hdfs_missing()` says why there is none on this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from xml.sax.saxutils import escape

from heronpy.testing._server_process import ServerProcess, free_port

HDFS_JARS_ENV: Final = "HERON_TEST_HDFS_JARS"
LIBHDFS_ENV: Final = "ARROW_LIBHDFS_DIR"
_JAVA = (
    "java",
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "-Djava.net.preferIPv4Stack=true",
)
_NAMENODE, _DATANODE = "namenode.NameNode", "datanode.DataNode"
_START_S = 240.0
_POLL_S = 0.1
_COMMAND_S = 120.0
_LOGGING = """\
log4j.rootLogger=INFO,A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%d %p %c{1} %m%n
"""


def hdfs_jars() -> Path | None:
    """The directory with HDFS's jars: the environment's word, or the newest that `make hdfs-server` has downloaded."""
    if given := os.environ.get(HDFS_JARS_ENV):
        return Path(given)
    return max(_cache().glob("hdfs-[0-9]*"), default=None)


def libhdfs() -> Path | None:
    """The directory with libhdfs.so: the environment's word, or where `make hdfs-server` builds it."""
    given = os.environ.get(LIBHDFS_ENV)
    directory = Path(given) if given else _cache() / "libhdfs"
    return directory if (directory / "libhdfs.so").exists() else None


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heronpy"


def hdfs_missing() -> str | None:
    """Why no HDFS can be started and reached here, or None if it can."""
    if shutil.which("java") is None:
        return "no HDFS: there is no java"
    if hdfs_jars() is None:
        return f"no HDFS: make hdfs-server, or put the directory of its jars into {HDFS_JARS_ENV}"
    if libhdfs() is None:
        return f"no HDFS: make hdfs-server, or put the directory of libhdfs.so into {LIBHDFS_ENV}"
    return None


class HdfsCluster:
    """NameNode and DataNode. A context manager: they run for the duration of the block."""

    def __init__(self, directory: Path) -> None:
        """Describe it; all its files are in a directory, which is made."""
        self.directory = directory
        self._ports = {name: free_port() for name in ("rpc", "web", "data", "dataweb", "dataipc")}
        self._processes: dict[str, ServerProcess] = {}
        """By what Hadoop calls them."""

    def url(self, path: str) -> str:
        """hdfs://…, as `open_storage` takes it; one copy of each block."""
        return f"hdfs://127.0.0.1:{self._ports['rpc']}/{path}?replication=1"

    @property
    def env(self) -> Mapping[str, str]:
        """What a process needs that is to reach it."""
        java = Path(os.path.realpath(shutil.which("java") or "java")).parents[1]
        jars = hdfs_jars()
        assert jars is not None, hdfs_missing()
        classpath = [str(self._conf), *sorted(map(str, jars.glob("*.jar")))]  # libhdfs expands no wildcards
        return {
            "CLASSPATH": ":".join(classpath),
            "JAVA_HOME": str(java),
            "HADOOP_CONF_DIR": str(self._conf),
            LIBHDFS_ENV: str(libhdfs()),
        }

    def __enter__(self) -> Self:
        try:
            self._configure()
            self._run_namenode("-format", "-nonInteractive")
            for daemon in (_NAMENODE, _DATANODE):
                self._start(daemon)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()

    def kill_namenode(self) -> None:
        """SIGKILL the NameNode: nothing can be opened any more. What it has answered is on disk."""
        self._processes[_NAMENODE].kill()

    def start_namenode(self) -> None:
        """Start it again, and wait until the DataNode has found it."""
        self._start(_NAMENODE)
        self._wait()

    @property
    def _conf(self) -> Path:
        return self.directory / "conf"

    def _start(self, daemon: str) -> None:
        output = self.directory / f"{daemon.partition('.')[0]}.log"
        self._processes[daemon] = ServerProcess(self._command(daemon), output)

    def _command(self, daemon: str) -> list[str]:
        return [*_JAVA, "-cp", f"{self._conf}:{hdfs_jars()}/*", f"org.apache.hadoop.hdfs.server.{daemon}"]

    def _run_namenode(self, *options: str) -> None:
        command = [*self._command(_NAMENODE), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
        if done.returncode:
            raise RuntimeError(f"HDFS cannot be made: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def _configure(self) -> None:
        for web in ("hdfs", "datanode"):  # without these their web servers do not start
            (self._conf / "webapps" / web).mkdir(parents=True, exist_ok=True)
        (self._conf / "log4j.properties").write_text(_LOGGING)
        ports = self._ports
        core = {"hadoop.tmp.dir": str(self.directory / "tmp"), "fs.defaultFS": f"hdfs://127.0.0.1:{ports['rpc']}"}
        hdfs = {
            "dfs.namenode.name.dir": f"file://{self.directory}/name",
            "dfs.datanode.data.dir": f"file://{self.directory}/data",
            "dfs.replication": "1",
            "dfs.namenode.http-address": f"127.0.0.1:{ports['web']}",
            "dfs.namenode.rpc-bind-host": "127.0.0.1",
            "dfs.datanode.address": f"127.0.0.1:{ports['data']}",
            "dfs.datanode.http.address": f"127.0.0.1:{ports['dataweb']}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{ports['dataipc']}",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.safemode.extension": "0",
        }
        for name, values in (("core", core), ("hdfs", hdfs)):
            lines = (f"<property><name>{k}</name><value>{escape(v)}</value></property>\n" for k, v in values.items())
            (self._conf / f"{name}-site.xml").write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")

    def _wait(self) -> None:
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            for process in self._processes.values():
                if not process.running():
                    raise RuntimeError(f"HDFS ended while it started:\n{process.tail(20)}")
            try:
                state = self._state()
            except (OSError, ValueError, LookupError):
                time.sleep(_POLL_S)  # it does not serve yet
                continue
            if state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational":
                return
            time.sleep(_POLL_S)
        raise RuntimeError(f"HDFS did not serve within {_START_S:g} s:\n{self._processes[_NAMENODE].tail()}")

    def _state(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._ports['web']}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        with urllib.request.urlopen(url, timeout=10) as reply:
            state: dict[str, Any] = json.loads(reply.read())["beans"][0]
        return state
