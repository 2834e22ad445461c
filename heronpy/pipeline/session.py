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
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from heronpy.child import Child, run
from heronpy.errors import ConfigError, HeronError, UnavailableError
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
_JVM_ENDED_S = 5.0
"""After a connection to it was cut, the JVM has ended within that, or something else was wrong."""
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
_ENVIRONMENT = "spark.executorEnv."
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CHATTER = "WARNING: Using incubator modules:"
"""How a line begins that every JVM of Spark prints, whatever its configuration: Spark asks for the module."""
_HELD_LINES_MAX = 1_000
_NO_REASON = ("Picked up ", "Error: Could not create the Java", "Error: A fatal exception", "\t", " ", "/")
"""How lines begin that a JVM prints beside the one that says why it does not start."""
_MAIN_FAILED = re.compile(r'Exception in thread "main" (?:[\w.$]+: )?')
_WORDS_MAX = 300
_NO_SPACE = "no space left"
_NO_ROOM = ("insufficient memory", "could not reserve", "cannot allocate", _NO_SPACE)
"""What it says when the machine is the reason."""
_OF_SETTINGS = re.compile(
    r"java\.lang\.(IllegalArgument|NumberFormat|ClassNotFound)Exception|org\.apache\.spark\.Spark\w*Exception"
)
"""What Spark raises for settings that it cannot have, where nothing but this machine has a part in its start."""


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
        UnavailableError: PySpark, PyArrow or Java is missing, Spark does not start or ends in the middle, or executors
            on other machines cannot work; one line.
        ConfigError: Spark does not start with these settings.
        UsageError: `master` is not a master.
    """
    check_packages()
    from heronpy.pipeline.executors import equip

    with (
        _shared.session(lambda: _started(app, master, conf)) as session,
        _death_named(),
        pods.ended_by_spark(session.sparkContext),
    ):
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

    with start_named(master, conf):  # spark-submit: it chose the master, and ends the JVM
        session = SparkSession.builder.appName(app).getOrCreate()
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
            text = run([java, "-version"], timeout_s=_JAVA_VERSION_S).stderr
        except (OSError, subprocess.TimeoutExpired):
            return 0
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _defaults(master: str, conf: Mapping[str, str], log_config: Path) -> dict[str, str]:
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={log_config.as_uri()} -XX:+UseSerialGC {_JIT}",
        "spark.python.worker.memory": "512m",
        "spark.broadcast.compress": "false",
    }
    if is_local(master):
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    defaults["spark.python.daemon.module"] = "heronpy.pipeline._daemon"
    return defaults | cluster_defaults(master, conf)


@contextlib.contextmanager
def _own_session(app: str, master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with contextlib.ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="heron-spark-", ignore_cleanup_errors=True))
        )
        log_config, pods_log = scratch / "log4j2.properties", scratch / "pods.log"
        defaults = _defaults(master, conf, log_config)
        settings = {**defaults, "spark.local.dir": str(scratch), **conf}
        settings[_JAVA_OPTIONS] = " ".join((defaults[_JAVA_OPTIONS], conf.get(_JAVA_OPTIONS, ""))).strip()
        if pods.is_kubernetes(master):
            settings[pods.LOG_KEY] = str(pods_log)
        log_config.write_text(_LOG_CONFIG + (pods.log_config(pods_log) if pods.is_kubernetes(master) else ""))
        spark_conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(app).setAll(list(settings.items()))
        stack.enter_context(_environment(master, conf))
        limit_s = None if is_local(master) else start_timeout_s(conf)
        stderr = stack.enter_context(_Stderr())
        stack.callback(_end_jvm)
        # In words before the JVM is ended, which has them.
        with (
            start_named(master, conf, stderr, pods_log),
            _nothing_half_started(limit_s, stderr) as is_late,
            _in_words(),
        ):
            try:
                if SparkContext._gateway is None:
                    _launch_jvm(spark_conf, stderr.fd)
                session = SparkSession.builder.config(conf=spark_conf).getOrCreate()
            except Exception as e:
                if not is_late.is_set():
                    raise
                raise UnavailableError(
                    f"Spark has not started on {master} within {limit_s:g} s: the cluster does not answer, or lacks "
                    f"resources for the application; {START_TIMEOUT_KEY} is how long to wait"
                ) from e
        stderr.release()
        stack.callback(_stop, session)
        yield session


@contextlib.contextmanager
def start_named(
    master: str, conf: Mapping[str, str], stderr: _Stderr | None = None, pods_log: Path | None = None
) -> Iterator[None]:
    """Inside Spark starts; what it fails for is one line.

    Args:
        master: its master.
        conf: the settings that it was given.
        stderr: of its JVM, if that is started here.
        pods_log: where it says why there are no pods.

    Raises:
        ConfigError: it fails for the settings.
        UnavailableError: it fails for something else.
    """
    try:
        with _in_words():
            yield
    except _Failed as e:
        raised, cause = e.__cause__, e.words
        is_of_settings = _OF_SETTINGS.match(cause) is not None
        if stderr is not None and not e.is_of_java:
            stderr.close()
            if reason := stderr.reason():
                cause, is_of_settings = reason, not any(words in reason.lower() for words in _NO_ROOM)
                if _NO_SPACE in reason.lower():
                    cause += f", in {tempfile.gettempdir()}: free some, or set TMPDIR to another directory"
        if pods_log is not None:
            cause = pods.why_ended(pods.read_log(pods_log)) or pods.api_words(cause)
        message = f"Spark does not start on {master}: {cause}"
        given = sorted(key for key in conf if not key.startswith(_ENVIRONMENT))
        if is_of_settings and given and is_local(master):
            raise ConfigError(f"{message} (settings given: {', '.join(given)})") from raised
        raise UnavailableError(message) from raised


@contextlib.contextmanager
def _death_named() -> Iterator[None]:
    """Inside Spark works; whatever fails because its JVM is gone is one line.

    Raises:
        UnavailableError: the JVM has ended.
    """
    try:
        yield
    except UnavailableError:
        raise
    except Exception as e:
        if how := _jvm_ended(e):
            raise UnavailableError(
                f"Spark's JVM has ended ({how}), perhaps for lack of memory: what was done before stays done; run again"
            ) from e
        raise


@contextlib.contextmanager
def refusals_named() -> Iterator[None]:
    """Inside, what Spark refuses is one line. For our own calls of it: a user's block has Spark's own errors.

    Raises:
        HeronError: it has refused something.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as e:
        raise HeronError(f"Spark has failed: {' '.join(_cause(e).split())[:_WORDS_MAX]}") from e


class _Failed(Exception):
    """Of Spark, in words: the JVM must be asked for its own while it lives."""

    def __init__(self, words: str, *, is_of_java: bool) -> None:
        super().__init__(words, is_of_java)
        self.words, self.is_of_java = words, is_of_java


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as e:  # the last: the JVM has ended
        raise _Failed(_cause(e), is_of_java=isinstance(e, Py4JJavaError)) from e


def _jvm_ended(error: BaseException) -> str:
    """How the JVM has ended that this process has started; empty: it has not.

    A connection that is cut is known before the JVM's end: that is waited for.
    """
    from py4j.protocol import Py4JNetworkError

    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, (Py4JNetworkError, ConnectionError, EOFError)):
        seen = seen.__cause__ or seen.__context__
    code = _exit_code(0.0 if seen is None else _JVM_ENDED_S)
    if not code:
        return ""
    return f"exit code {code}" if code > 0 else signal.Signals(-code).name


def _exit_code(within_s: float) -> int:
    """Of the JVM that this process has started; 0: it lives, or is another process's."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return 0
    try:
        return int(process.wait(within_s))
    except subprocess.TimeoutExpired:
        return 0


def _cause(error: Exception) -> str:
    from py4j.protocol import Py4JError, Py4JJavaError

    if not isinstance(error, Py4JJavaError):
        return str(error)
    try:
        return str(error.java_exception.toString())
    except (Py4JError, ConnectionError):
        return "its JVM has ended"


@contextlib.contextmanager
def _nothing_half_started(limit_s: float | None, stderr: _Stderr) -> Iterator[threading.Event]:
    """End the JVM that the block starts, if the block fails, or has not ended in time: then it fails for that.

    It is asked to end first, for what it has made on the cluster is removed by itself alone.

    PySpark waits for the file in which the JVM is to write its port. If it cannot (the disk is full; or PySpark was
    interrupted, and has removed the directory), its main thread fails, and other threads of it live for ever: so would
    the block. By what it says in `stderr` it is ended then, too.
    """
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    started: list[subprocess.Popen[bytes]] = []
    popen = java_gateway.Popen

    def recorded(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        started.append(Child(*args, **kwargs))
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
    stderr.on_failed_main = lambda: _terminate(started)
    try:
        yield is_late
    except BaseException:
        _end(started)
        raise
    finally:
        timer.cancel()
        java_gateway.Popen = popen


def _terminate(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()


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


class _Stderr:
    """Standard error of a JVM: what is written there goes on to ours, but for what every JVM of Spark says.

    Until `release` it is held: if Spark does not start, it has the reason. A context manager.
    """

    def __init__(self) -> None:
        ours, self.fd = os.pipe()
        self._lock = threading.Lock()
        self._held: list[str] | None = []
        self._is_open = True
        self.on_failed_main: Callable[[], object] = lambda: None
        """Called, until `release`, when the main thread of the JVM has failed."""
        self._reader = threading.Thread(target=self._pass_on, args=(ours,), name="spark stderr", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the JVM's last word."""
        if self._is_open:
            self._is_open = False
            os.close(self.fd)
            self._reader.join(_JVM_END_S)

    def release(self) -> None:
        """Spark has started: pass on what was held, and what follows as it comes."""
        with self._lock:
            _print_lines(self._held or ())
            self._held = None

    def reason(self) -> str:
        """The line of those held that says why a JVM does not start; empty: none does."""
        with self._lock:
            lines = [line.rstrip() for line in self._held or ()]
        if failed := next((line for line in lines if _MAIN_FAILED.match(line)), ""):
            return _MAIN_FAILED.sub("", failed)
        return next((line for line in lines if line and not line.startswith(_NO_REASON)), "")

    def _pass_on(self, fd: int) -> None:
        with open(fd, "rb") as lines, contextlib.suppress(OSError, ValueError):  # standard error may be closed
            for raw in lines:
                line = raw.decode(errors="replace")
                if line.startswith(_CHATTER):
                    continue
                with self._lock:
                    if self._held is None:
                        _print_lines([line])
                        continue
                    if len(self._held) < _HELD_LINES_MAX:
                        self._held.append(line)
                if _MAIN_FAILED.match(line):
                    self.on_failed_main()


def _print_lines(lines: Iterable[str]) -> None:
    sys.stderr.writelines(lines)
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
