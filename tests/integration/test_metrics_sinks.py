"""Sinks: ours pass the kit, and one that fails or hangs disturbs nobody."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from prometheus_client.parser import text_string_to_metric_families
from topology_on_disk import launch_in, submit

from heronpy.config import SinkSpec
from heronpy.errors import UnavailableError
from heronpy.metricsmgr import Reporter
from heronpy.metricsmgr.parts import MetricsManager
from heronpy.metricsmgr.sinks import (
    FileSink,
    GraphiteSink,
    IMetricsSink,
    MetricsRecord,
    SinkContext,
    SinkRunner,
    sink_factory,
)
from heronpy.proto import metrics_pb2
from heronpy.runtime import Launch, running
from heronpy.statemgr import open_statemgr
from heronpy.testing import eventually, scrape
from heronpy.testing.servers import free_port
from heronpy.testing.sinks_kit import EMITTED, SinkKit, Target, record, seen


def values_in(directory: Path) -> dict[tuple[str, str], float]:
    """What the files of a FileSink say, the oldest file first."""
    values: dict[tuple[str, str], float] = {}
    paths = directory.glob("metrics.json.*")
    for path in sorted(paths, key=lambda p: int(p.name.rpartition(".")[2]), reverse=True):
        for line in path.read_text().rpartition("\n")[0].splitlines():  # without one that is being written
            entry = json.loads(line)
            values.update({(entry["instance"], name): value for name, value in entry["metrics"].items()})
    return values


class TestFileSink(SinkKit):
    @pytest.fixture
    def target(self, tmp_path: Path) -> Target:
        return Target(FileSink, {"filename-output": "metrics.json"}, lambda: values_in(tmp_path / "log-files"))

    def test_files_rotate_and_the_oldest_are_removed(self, context: SinkContext) -> None:
        sink = FileSink(file_bytes_max=1000)
        sink.init({"filename-output": "metrics.json", "file-maximum": 3}, context)
        for n in range(50):
            sink.process_record(record(n, n=n))
            sink.flush()
        sink.close()
        names = sorted(p.name for p in context.log_dir.iterdir())
        assert names == ["metrics.json.1.0", "metrics.json.1.1", "metrics.json.1.2"]
        assert all(p.stat().st_size <= 1000 for p in context.log_dir.iterdir())
        assert values_in(context.log_dir)["container_1_word_1", EMITTED] == 49

    def test_a_name_that_leads_elsewhere_is_refused(self, context: SinkContext) -> None:
        with pytest.raises(ValueError, match="without directories"):
            FileSink().init({"filename-output": "../metrics.json"}, context)

    def test_exceptions_between_two_flushes_are_all_written(self, context: SinkContext) -> None:
        sink = FileSink()
        sink.init({}, context)
        sink.process_record(record(1))
        sink.process_record(MetricsRecord("words", "word", "container_1_word_1", 1, 5, ()))
        sink.flush()
        (line,) = (context.log_dir / "metrics.json.1.0").read_text().splitlines()
        assert json.loads(line)["exceptions"][0]["count"] == 3


class GraphiteServer:
    """Listens and keeps the lines; can hang up and go away."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], float] = {}
        self.lines: list[str] = []
        self._connections: list[socket.socket] = []
        self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    def _listen(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    self.lines.append(line)
                    path, value, _seconds = line.split(" ")
                    _prefix, _topology, _component, instance, *name = path.split(".")
                    self.values[instance, ".".join(name)] = float(value)
        except OSError:
            return

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(300)
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def restart(self) -> None:
        self._listen(self.port)


@pytest.fixture
def graphite() -> Iterator[GraphiteServer]:
    server = GraphiteServer()
    yield server
    server.stop()


class TestGraphiteSink(SinkKit):
    @pytest.fixture
    def target(self, graphite: GraphiteServer) -> Target:
        config = {"graphite-host": "127.0.0.1", "graphite-port": graphite.port, "metrics-prefix": "heron"}
        return Target(GraphiteSink, config, lambda: dict(graphite.values), lambda name: name.replace("/", "."))

    async def test_a_line_is_path_value_and_seconds(
        self, sink: IMetricsSink, target: Target, graphite: GraphiteServer
    ) -> None:
        sink.process_record(record(3))
        sink.flush()
        await seen(target, {("container_1_word_1", "temperature"): -1.5})
        assert graphite.lines == [
            "heron.words.word.container_1_word_1.__emit-count.default 3 1700000000\n",
            "heron.words.word.container_1_word_1.temperature -1.5 1700000000\n",
        ]

    async def test_lines_wait_for_a_server_that_is_away(
        self, sink: IMetricsSink, target: Target, graphite: GraphiteServer
    ) -> None:
        sink.process_record(record(1))
        sink.flush()
        await seen(target, {("container_1_word_1", EMITTED): 1.0})
        graphite.stop()
        sink.process_record(record(2, instance="container_1_word_2"))
        sink.flush()
        graphite.restart()
        sink.process_record(record(3, instance="container_1_word_3"))
        sink.flush()
        await seen(target, {("container_1_word_2", EMITTED): 2.0, ("container_1_word_3", EMITTED): 3.0})

    async def test_a_server_that_is_away_is_reported_once(
        self, context: SinkContext, caplog: pytest.LogCaptureFixture
    ) -> None:
        sink = GraphiteSink()
        sink.init({"graphite-host": "127.0.0.1", "graphite-port": free_port()}, context)
        sink.process_record(record(1))
        sink.flush()
        sink.flush()
        sink.close()
        assert caplog.text.count("takes no metrics, they wait: [Errno 111] Connection refused") == 1

    async def test_what_waits_is_bounded_and_the_oldest_make_room(
        self, target: Target, context: SinkContext, graphite: GraphiteServer
    ) -> None:
        sink = GraphiteSink(buffer_bytes_max=1000)
        sink.init(target.config, context)
        for n in range(100):
            sink.process_record(record(n, instance=f"container_1_word_{n}"))
        assert sink.dropped > 80
        sink.flush()
        await seen(target, {("container_1_word_99", EMITTED): 99.0})
        assert ("container_1_word_0", "__emit-count.default") not in graphite.values
        sink.close()


class Recording(IMetricsSink):
    """Of a user: keeps what it gets, and does what the test wants."""

    made: ClassVar[list[Recording]] = []
    fails_in: ClassVar[str] = ""
    hangs: ClassVar[threading.Event] = threading.Event()

    def init(self, config: Mapping[str, Any], context: SinkContext) -> None:
        type(self).made.append(self)
        self.config, self.records, self.flushes, self.closed = config, 0, 0, False
        self._may_fail("init")

    def process_record(self, record: MetricsRecord) -> None:
        self._may_fail("process_record")
        self.records += 1

    def flush(self) -> None:
        self._may_fail("flush")
        self.flushes += 1

    def close(self) -> None:
        self.closed = True
        self._may_fail("close")

    def _may_fail(self, where: str) -> None:
        if type(self).fails_in == where:
            raise RuntimeError(f"{where} failed")
        if type(self).fails_in == f"hang in {where}":
            type(self).hangs.wait(300)


@pytest.fixture
def recording() -> Iterator[type[Recording]]:
    Recording.made, Recording.fails_in, Recording.hangs = [], "", threading.Event()
    yield Recording
    Recording.hangs.set()


def runner(
    tmp_path: Path,
    *,
    restarts: int = -1,
    flush_ms: int = 10,
    make: Callable[[], IMetricsSink] = Recording,
    hang_s: float = 600.0,
) -> SinkRunner:
    spec = SinkSpec(
        name="mine", sink_class="-", flush_interval_ms=flush_ms, restart_attempts=restarts, options={"a": 1}
    )
    context = SinkContext("words", 1, "mine", tmp_path)
    return SinkRunner(spec, context, make, backoff_s=0.01, records_max=8, hang_s=hang_s)


async def test_a_sink_gets_every_record_and_is_flushed_and_closed(tmp_path: Path, recording: type[Recording]) -> None:
    running_sink = runner(tmp_path)
    running_sink.start()
    for n in range(5):
        running_sink.offer(record(n))
    assert running_sink.stop(120)
    (sink,) = recording.made
    assert (sink.records, sink.closed, sink.config) == (5, True, {"a": 1})
    assert sink.flushes >= 1
    assert (running_sink.processed, running_sink.dropped) == (5, 0)


@pytest.mark.parametrize("where", ["init", "process_record", "flush"])
async def test_a_sink_that_fails_is_closed_and_started_again(
    tmp_path: Path, recording: type[Recording], where: str
) -> None:
    recording.fails_in = where
    running_sink = runner(tmp_path)
    running_sink.start()
    running_sink.offer(record(1))

    def failed() -> None:
        assert running_sink.failures >= 1

    await eventually(failed)
    recording.fails_in = ""

    def works() -> None:
        running_sink.offer(record(2))
        assert recording.made[-1].records > 0

    await eventually(works)
    assert all(sink.closed for sink in recording.made[:-1])
    assert running_sink.stop(120)


async def test_a_sink_is_given_up_after_its_attempts_and_its_records_are_counted(
    tmp_path: Path, recording: type[Recording]
) -> None:
    recording.fails_in = "init"
    running_sink = runner(tmp_path, restarts=2)
    running_sink.start()

    def given_up() -> None:
        assert running_sink.failures == 3
        running_sink.offer(record(1))
        assert running_sink.dropped >= 1

    await eventually(given_up)
    assert len(recording.made) == 3
    assert running_sink.stop(120)


async def test_a_sink_that_hangs_costs_its_own_records_only(tmp_path: Path, recording: type[Recording]) -> None:
    recording.fails_in = "hang in process_record"
    running_sink = runner(tmp_path)
    running_sink.start()
    start_s = time.monotonic()
    for n in range(100):
        running_sink.offer(record(n))
    assert time.monotonic() - start_s < 200, "an offer waited"
    assert running_sink.dropped >= 90
    assert not running_sink.stop(0.1)
    recording.hangs.set()


@pytest.mark.parametrize("where", ["init", "process_record", "flush"])
async def test_a_sink_that_hangs_is_named_once_and_again_when_it_goes_on(
    tmp_path: Path, recording: type[Recording], caplog: pytest.LogCaptureFixture, where: str
) -> None:
    recording.fails_in = f"hang in {where}"
    running_sink = runner(tmp_path, hang_s=0.05)
    running_sink.start()

    def told_once(what: str) -> None:
        running_sink.offer(record(1))
        # On a busy machine something else may take a while too, and is named.
        assert len([message for message in caplog.messages if re.match(what, message)]) == 1

    await eventually(lambda: told_once(f"sink mine hangs in {where}:"))
    told_once(f"sink mine hangs in {where}:")
    recording.fails_in = ""
    recording.hangs.set()
    await eventually(lambda: told_once(rf"sink mine has returned from {where} after \d+ s"))
    assert running_sink.stop(120)


async def test_a_failure_says_where_and_what_in_one_line(
    tmp_path: Path, recording: type[Recording], caplog: pytest.LogCaptureFixture
) -> None:
    recording.fails_in = "flush"
    running_sink = runner(tmp_path, restarts=0)
    running_sink.start()

    def told() -> None:
        assert len(caplog.messages) == 2

    await eventually(told)
    assert re.fullmatch(
        r"sink mine failed in _may_fail \(test_metrics_sinks.py:\d+\): RuntimeError: flush failed", caplog.messages[0]
    )
    assert caplog.messages[1] == "sink mine is given up; failures: 1"
    assert running_sink.stop(120)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (None, "absent.Sink", "sink mine is not used: 'absent.Sink' cannot be imported: No module named 'absent'; is"),
        ("", "empty.Sink", "sink mine is not used: 'empty.Sink' cannot be imported: module 'empty' has no attribute"),
        ("Sink = 1", "number.Sink", "sink mine is not used: 'number.Sink' is not a class of a sink"),
        ("1/0", "raising.Sink", "sink mine failed in <module> (raising.py:1): ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "leaving.Sink", "sink mine failed in <module> (leaving.py:1): SystemExit: 3"),
        ("def f(:", "wrong.Sink", "SyntaxError: invalid syntax (wrong.py, line 1)"),
        ("import time; time.sleep(0.5)", "sleeping.Sink", "sink mine hangs in its constructor: "),
    ],
)
async def test_a_class_that_cannot_be_had_is_named_in_the_log_and_ends_nothing(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    name: str,
    said: str,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    if text is not None:
        (tmp_path / f"{name.removesuffix('.Sink')}.py").write_text(text)
    running_sink = runner(tmp_path, restarts=0, make=sink_factory(name), hang_s=0.05)
    running_sink.start()

    def told() -> None:
        running_sink.offer(record(1))
        assert said in caplog.text

    await eventually(told)
    assert all(len(message.splitlines()) == 1 for message in caplog.messages)
    assert running_sink.stop(120)


def test_a_line_that_a_full_disk_has_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / "metrics.json.1.0").write_text('{"time_ms": 17000')
    sink = FileSink()
    sink.init({}, SinkContext("words", 1, "file", tmp_path))
    sink.process_record(record(5))
    sink.flush()
    _, whole = (tmp_path / "metrics.json.1.0").read_text().splitlines()
    assert json.loads(whole)["metrics"][EMITTED] == 5


SINKS = {
    "sinks": ["prometheus-sink", "bad", "absent", "file-sink", "graphite-sink"],
    "prometheus-sink": {"class": "PrometheusSink", "path": "/prom"},
    "bad": {"class": f"{__name__}.Recording", "flush-frequency-ms": 20},
    "absent": {"class": "no_such_module.Sink"},
    "file-sink": {"class": "FileSink", "flush-frequency-ms": 20},
}


@pytest.fixture
def launch(tmp_path: Path, graphite: GraphiteServer) -> Iterator[Launch]:
    sinks = {**SINKS, "graphite-sink": {"class": "GraphiteSink", "flush-frequency-ms": 20, "port": graphite.port}}
    keys = {"heron.metrics.export.interval.ms": 50, "heron.metricsmgr.sinks": json.dumps(sinks)}
    launch = launch_in(tmp_path, keys)
    with open_statemgr(launch.statemgr) as sm:
        submit(sm, 1)
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as response:
        return str(response.read().decode())


async def test_sinks_of_one_metrics_manager_agree_exactly_while_one_of_them_fails(
    launch: Launch, recording: type[Recording], graphite: GraphiteServer
) -> None:
    recording.fails_in = "process_record"
    new = iter([3.0, 4.0])
    reporter = Reporter(
        launch,
        container=1,
        source="container_1_word_1",
        component="word",
        collect=lambda: [metrics_pb2.Metric(name=EMITTED, value=next(new, 0.0))],
    )
    files = launch.log_dir(1)
    async with running(MetricsManager(launch, 1)) as manager:
        for _ in range(2):
            assert await reporter.flush(120)

        def written() -> None:
            values = values_in(files)
            assert values.get(("container_1_word_1", EMITTED)) == 7
            assert graphite.values.get(("container_1_word_1", "__emit-count.default")) == 7
            assert values.get(("metricsmgr-1", "__sink-failure-count/bad"), 0) >= 1
            assert values.get(("metricsmgr-1", "__sink-dropped-record-count/bad"), 0) >= 1

        await eventually(written)
        text = await asyncio.to_thread(scrape, launch, manager.prometheus_port, "/prom")
        samples = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}
        assert samples["heron_emit_count_total"] == 7
        with pytest.raises(UnavailableError, match="404"):
            await asyncio.to_thread(scrape, launch, manager.prometheus_port)
        assert await reporter.flush(120)
    assert values_in(files)["container_1_word_1", EMITTED] == 7, "what waited was written at the end"
