"""A Spark session that leaves nothing behind.

PySpark starts its JVM as a child whose standard input is a pipe: the JVM ends when that closes, so also when this
process is killed. An orderly end here does not wait for the end of the process: with the session the JVM goes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.errors import UnavailableError
from heronpy.pipeline import pods
from heronpy.pipeline.masters import (
    START_TIMEOUT_KEY,
    check_master,
    cluster_defaults,
    is_local,
    python_of_executors,
    start_timeout_s,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
_JVM_END_S = 60.0
"""A JVM that ends because of its executors waits 20 s for its own threads before it removes them."""
_JAVA_VERSION_S = 20.0
_LOG_CONFIG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n%ex{0}
# A job that fails is reported by its starter, in one line; these would print it with all frames, per attempt.
logger.task.name = org.apache.spark.scheduler
logger.task.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
logger.context.name = org.apache.spark.SparkContext
logger.context.level = off
# Of executors that end with the application a last request may be open.
logger.answers.name = org.apache.spark.network.client.TransportResponseHandler
logger.answers.level = off
logger.requests.name = org.apache.spark.network.server.TransportRequestHandler
logger.requests.level = off
# Spark announces a level for shells, which it takes from this class, unless it is the root's.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_JIT = "-XX:TieredStopAtLevel=1"
"""The JVM moves blocks of bytes and lives for minutes: the optimizing compiler takes 3 s of a small run's processor
time to start, and nothing is faster for it."""
_CHATTER = b"WARNING: Using incubator modules:"
"""How a line begins that every JVM of Spark prints, whatever its configuration: Spark asks for the module."""


class _Shared:
    """The session that this process has started: a process has one at a time, so jobs of several threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._held = contextlib.ExitStack()
        self._session: Any = None

    @contextlib.contextmanager
    def session(self, start: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
        """It, started by the first of its users and ended by the last; one that somebody else has started stays."""
        with self._lock:
            session = self._session if self._users else _existing()
            is_own = self._users > 0 or session is None
            if session is None:
                session = self._session = self._held.enter_context(start())
            self._users += is_own
        try:
            yield session
        finally:
            with self._lock:
                self._users -= is_own
                if is_own and not self._users:
                    self._session = None
                    self._held.close()


_shared = _Shared()


@contextlib.contextmanager
def spark_session(app: str, master: str = "local[*]", conf: Mapping[str, str] = {}) -> Iterator[SparkSession]:
    """A Spark session; when the block ends its JVM is gone. One that exists already is used, and stays.

    Where several threads have such blocks, the session is that of the first, and its JVM goes with the last.

    Args:
        app: shown in Spark's UI.
        master: Spark's master URL.
        conf: Spark's configuration, over the defaults made here.

    Raises:
        UnavailableError: PySpark, PyArrow or Java is missing, Spark does not start, or executors on other machines
            cannot work; one line.
        UsageError: `master` is not a master.
    """
    check_packages()
    from heronpy.pipeline.executors import equip

    with _shared.session(lambda: _started(app, master, conf)) as session, pods.ended_by_spark(session.sparkContext):
        equip(session.sparkContext, conf)
        yield session


def _existing() -> Any:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        return SparkSession(SparkContext._active_spark_context)
    return active


@contextlib.contextmanager
def _started(app: str, master: str, conf: Mapping[str, str]) -> Iterator[Any]:
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_java()
        check_master(master)
        if pods.is_kubernetes(master):
            pods.check_image(conf)
        with _own_session(app, master, conf) as session:
            yield session
        return
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName(app).getOrCreate()  # spark-submit: it chose the master, and ends the JVM
    try:
        yield session
    finally:
        session.stop()


def check_packages() -> None:
    """Raise UnavailableError, one line, unless PySpark and PyArrow are there."""
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise UnavailableError(f"batch runs need {package}: pip install 'heron-engine[spark]'")


def check_java() -> None:
    """Raise UnavailableError, one line, unless there is a Java that Spark can use."""
    hint = f"install Java {JAVA_MIN} or newer (apt-get install openjdk-17-jre-headless), or set JAVA_HOME to it"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if java is None:
        raise UnavailableError(f"Spark needs Java, and there is none {f'in {home}' if home else 'on the PATH'}: {hint}")
    version = _java_version(java)
    if version < JAVA_MIN:
        raise UnavailableError(
            f"Spark needs Java {JAVA_MIN}, and {java} is Java {version or 'of no known version'}: {hint}"
        )


def _java_version(java: str) -> int:
    """The major version; 0 if it cannot be determined."""
    release = Path(java).resolve().parent.parent / "release"  # saves the start of a JVM
    try:
        text = release.read_text()
    except OSError:
        try:
            text = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=_JAVA_VERSION_S, check=False
            ).stderr
        except (OSError, subprocess.TimeoutExpired):
            return 0
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _defaults(master: str, conf: Mapping[str, str], log_config: Path) -> dict[str, str]:
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_config.as_uri()} -XX:+UseSerialGC {_JIT}",
        "spark.python.worker.memory": "512m",
        "spark.broadcast.compress": "false",
    }
    if is_local(master):
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    defaults["spark.python.daemon.module"] = "heronpy.pipeline._daemon"
    return defaults | cluster_defaults(master, conf)


@contextlib.contextmanager
def _own_session(app: str, master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    failures = (PySparkException, Py4JError, ConnectionError)  # the last: the JVM has ended
    with contextlib.ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="heron-spark-", ignore_cleanup_errors=True))
        )
        log_config, pods_log = scratch / "log4j2.properties", scratch / "pods.log"
        settings = {**_defaults(master, conf, log_config), "spark.local.dir": str(scratch), **conf}
        if pods.is_kubernetes(master):
            settings[pods.LOG_KEY] = str(pods_log)
        log_config.write_text(_LOG_CONFIG + (pods.log_config(pods_log) if pods.is_kubernetes(master) else ""))
        spark_conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(app).setAll(list(settings.items()))
        stack.enter_context(_environment(master, conf))
        limit_s = None if is_local(master) else start_timeout_s(conf)
        stderr = stack.enter_context(_filtered_stderr())
        stack.callback(_end_jvm)
        try:
            with _nothing_half_started(limit_s) as is_late:
                try:
                    if SparkContext._gateway is None:
                        _launch_jvm(spark_conf, stderr)
                    session = SparkSession.builder.config(conf=spark_conf).getOrCreate()
                except failures as e:
                    cause = _cause(e)  # which the JVM says, as long as it lives
                    raise
        except failures as e:
            if is_late.is_set():
                raise UnavailableError(
                    f"Spark has not started on {master} within {limit_s:g} s: the cluster does not answer, or lacks "
                    f"resources for the application; {START_TIMEOUT_KEY} is how long to wait"
                ) from e
            cause = pods.why_ended(pods.read_log(pods_log)) or pods.api_words(cause)
            raise UnavailableError(f"Spark does not start on {master}: {cause}") from e
        stack.callback(_stop, session)
        yield session


def _cause(error: Exception) -> str:
    from py4j.protocol import Py4JError, Py4JJavaError

    if not isinstance(error, Py4JJavaError):
        return str(error)
    try:
        return str(error.java_exception.toString())
    except (Py4JError, ConnectionError):
        return "its JVM has ended"


@contextlib.contextmanager
def _nothing_half_started(limit_s: float | None) -> Iterator[threading.Event]:
    """End the JVM that the block starts, if the block fails, or has not ended in time: then it fails for that.

    It is asked to end first, for what it has made on the cluster is removed by itself alone.

    Interrupted while it waits for the JVM, PySpark removes the directory in which that is to write its port. The JVM's
    main thread fails for that, and other threads of it live for ever.
    """
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    started: list[subprocess.Popen[bytes]] = []
    popen = java_gateway.Popen

    def recorded(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **kwargs))
        return started[-1]

    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        _end(started)

    timer = threading.Timer(limit_s or 0.0, give_up)
    timer.daemon = True
    if limit_s is not None:
        timer.start()
    java_gateway.Popen = recorded
    try:
        yield is_late
    except BaseException:
        _end(started)
        raise
    finally:
        timer.cancel()
        java_gateway.Popen = popen


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
        try:
            process.wait(_JVM_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_JVM_END_S)


def _launch_jvm(conf: Any, stderr: int) -> None:
    """Start the JVM as PySpark would, with another standard error."""
    from pyspark import SparkContext

    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    SparkContext._ensure_initialized(gateway=java_gateway.launch_gateway(conf, {"stderr": stderr}), conf=conf)


@contextlib.contextmanager
def _filtered_stderr() -> Iterator[int]:
    """A file descriptor: what is written there goes to standard error, but for what every JVM of Spark says."""
    ours, its = os.pipe()
    reader = threading.Thread(target=_pass_on, args=(ours,), name="spark stderr", daemon=True)
    reader.start()
    try:
        yield its
    finally:
        os.close(its)
        reader.join(_JVM_END_S)  # up to the JVM's last word


def _pass_on(fd: int) -> None:
    with open(fd, "rb") as lines, contextlib.suppress(OSError, ValueError):  # standard error may be closed
        for line in lines:
            if not line.startswith(_CHATTER):
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()


@contextlib.contextmanager
def _environment(master: str, conf: Mapping[str, str]) -> Iterator[None]:
    """Which Python Spark's workers run; on one machine nothing listens beyond it."""
    wanted = {"PYSPARK_PYTHON": python_of_executors(master, conf)}
    if is_local(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _stop(session: Any) -> None:
    # The JVM may be dead already (killed, out of memory): then there is nothing to stop.
    with contextlib.suppress(Exception):
        session.stop()


def _end_jvm() -> None:
    """End the JVM that PySpark keeps for the life of the process, and let a later session start a new one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is None:
        return
    with contextlib.suppress(Exception):  # the JVM may be dead already
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    with contextlib.suppress(OSError):  # as above
        process.stdin.close()
    try:
        process.wait(_JVM_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_JVM_END_S)
