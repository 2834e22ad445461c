"""Real servers for tests: started on free ports, gone when the test process is gone.

    with ZookeeperServer(tmp_path) as zookeeper:
        sm = open_statemgr(StatemgrSpec(type="zookeeper", connection=zookeeper.connection, root="/heron"))

`zookeeper_missing()` says why there is none on this machine, for a skip that states its reason.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import importlib.util
import json
import os
import shutil
import socket
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from heronpy.security import METRICS_DNS_NAME
from heronpy.testing._server_process import Server, ServerProcess, free_port, listening
from heronpy.testing._zookeeper import (
    ZOOKEEPER_CLASSPATH_ENV,
    ZookeeperServer,
    zookeeper_classpath,
    zookeeper_ensemble,
    zookeeper_missing,
)

if TYPE_CHECKING:
    pass

VERSITYGW_ENV = "HERON_TEST_VERSITYGW"

_REDIS_CONFIG = """\
port {port}
bind 127.0.0.1
dir "{data}"
save ""
appendonly yes
appendfsync always
requirepass "{password}"
"""


@functools.cache
def spark_missing() -> str | None:
    """Why no Spark can be started here, or None if one can."""
    # Imported here: it takes a while, and is what batch runs themselves ask.
    from heronpy.errors import UnavailableError
    from heronpy.pipeline.session import check_java, check_packages

    try:
        check_packages()
        check_java()
    except UnavailableError as e:
        return f"no Spark: {e}"
    return None


def redis_missing() -> str | None:
    """Why no Redis can be started here, or None if one can."""
    if shutil.which("redis-server") is None:
        return "no Redis: install Debian's package redis-server"
    if importlib.util.find_spec("redis") is None:
        return "no Redis: pip install 'heron-engine[redis]'"
    return None


class RedisServer(Server):
    """One real Redis server with its data in a directory. A context manager: runs for the duration of the block.

    What it has answered is on disk: it survives a kill.
    """

    name = "Redis"
    port_taken = "Address already in use"

    def __init__(self, directory: Path, *, port: int = 0, password: str = "") -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            password: Of the default user; empty: none is needed.
        """
        super().__init__(directory, port)
        self._password = password

    @property
    def url(self) -> str:
        """redis://…, as a Redis client takes it; with the password, if there is one."""
        user = f":{self._password}@" if self._password else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        assert shutil.which("redis-server") is not None, redis_missing()
        config = self.directory / "redis.conf"
        config.touch(mode=0o600)  # before the password is in it
        config.write_text(_REDIS_CONFIG.format(port=self.port, data=self.directory, password=self._password))
        return ["redis-server", str(config)]

    def _serving(self) -> bool:
        address, within_s = ("127.0.0.1", self.port), self._answer_s
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=within_s) as s:
            s.sendall(b"PING\r\n")
            return s.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        return False


def s3_missing() -> str | None:
    """Why no S3 server can be started here, or None if one can."""
    if importlib.util.find_spec("boto3") is None:
        return "no boto3: pip install 'heron-engine[s3]'"
    if _versitygw() is None:
        return f"no S3 server: put versitygw on the PATH, or its path into {VERSITYGW_ENV} (make s3-server)"
    return None


def _versitygw() -> str | None:
    return os.environ.get(VERSITYGW_ENV) or shutil.which("versitygw")


class S3Server(Server):
    """One real S3 server (versitygw) with its buckets in a directory. A context manager: runs for the block."""

    name = "S3"
    port_taken = "address already in use"
    access_key = "heron"
    secret_key = "not-a-secret"
    credentials: ClassVar[Mapping[str, str]] = {
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    """What its clients find in their environment."""

    def url(self, bucket: str) -> str:
        """s3://…, as a storage takes it; the bucket is made if it is not there."""
        (self.directory / "buckets" / bucket).mkdir(parents=True, exist_ok=True)
        return f"s3://{bucket}?endpoint=http://{self.bind}:{self.port}&region=us-east-1"

    def _command(self) -> Sequence[str]:
        versitygw = _versitygw()
        assert versitygw is not None, s3_missing()
        for name in ("buckets", "attributes"):
            (self.directory / name).mkdir(exist_ok=True)
        command = [versitygw, "--port", f"{self.bind}:{self.port}", "--health", "/health", "--quiet"]
        command += ["--access", self.access_key, "--secret", self.secret_key]
        # Not every file system has extended attributes.
        return [*command, "posix", "--sidecar", str(self.directory / "attributes"), str(self.directory / "buckets")]

    def _serving(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(self.bind, self.port, timeout=self._answer_s)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
        return False


_PROMETHEUS_CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 1s
rule_files: [{rules}]
scrape_configs:
  - job_name: heron
    honor_labels: true
    file_sd_configs:
      - files: ["{targets}"]
        refresh_interval: 1s
    tls_config: {tls}
"""


def prometheus_missing() -> str | None:
    """Why no Prometheus can be started here, or None if one can."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        return "no Prometheus: install Debian's package prometheus"
    return None


class PrometheusServer(Server):
    """One real Prometheus with its data in a directory. A context manager: runs for the duration of the block.

    It scrapes, every second, what `targets_file` lists, and evaluates the rules it was given.
    """

    name = "Prometheus"
    port_taken = "address already in use"

    def __init__(
        self, directory: Path, *, port: int = 0, rules: Sequence[Path] = (), scraper: Path | None = None
    ) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            rules: Files of recording and alert rules.
            scraper: The key and certificate that it shows; whom it trusts is in `targets.ca.pem` beside the targets.
        """
        super().__init__(directory, port)
        self.targets_file = directory / "targets.json"
        """What it scrapes, in the form of `file_sd`; may be written at any time."""
        self._rules = rules
        self._scraper = scraper

    @property
    def url(self) -> str:
        """http://host:port of its API."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API, e.g. of `query`.

        Raises:
            RuntimeError: it refuses; with its reason.
        """
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
            answer = json.load(connection.getresponse())
        if answer["status"] != "success":
            raise RuntimeError(f"{path} {parameters}: {answer['error']}")
        return answer["data"]

    def _command(self) -> Sequence[str]:
        assert prometheus_missing() is None, prometheus_missing()
        if not self.targets_file.exists():
            self.targets_file.write_text("[]")
        rules = ", ".join(f'"{path}"' for path in self._rules)
        config = self.directory / "prometheus.yml"
        config.write_text(_PROMETHEUS_CONFIG.format(rules=rules, targets=self.targets_file, tls=self._tls()))
        return [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def _tls(self) -> str:
        if self._scraper is None:
            return "{}"
        trusted = self.targets_file.with_suffix(".ca.pem")
        if not trusted.exists():
            trusted.write_bytes(self._scraper.read_bytes())  # Prometheus does not start without a certificate in it
        names = {
            "ca_file": str(trusted),
            "cert_file": str(self._scraper),
            "key_file": str(self._scraper),
            "server_name": METRICS_DNS_NAME,
        }
        return json.dumps(names)

    def _serving(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self._answer_s)
            with contextlib.closing(connection):
                connection.request("GET", "/-/ready")
                return connection.getresponse().status == 200
        return False


__all__ = [
    "VERSITYGW_ENV",
    "ZOOKEEPER_CLASSPATH_ENV",
    "PrometheusServer",
    "RedisServer",
    "S3Server",
    "Server",
    "ServerProcess",
    "ZookeeperServer",
    "free_port",
    "listening",
    "prometheus_missing",
    "redis_missing",
    "s3_missing",
    "spark_missing",
    "zookeeper_classpath",
    "zookeeper_ensemble",
    "zookeeper_missing",
]
