"""What a fork server forks: real processes, that are to be like those which are executed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import executor_process
import psutil
import pytest
from executor_process import Container, equal
from msgspec.structs import replace

from heronpy.errors import UnavailableError
from heronpy.executor import Children, Command
from heronpy.forkserver import ForkServer
from heronpy.host import INSTANCE_ENV, PROCESS_ENV, TOPOLOGY_ENV, HostProcess, engine_process, find_by_environment
from heronpy.parent import PARENT_ENV
from heronpy.testing import eventually_sync

container, stop_timeout_ms = executor_process.container, executor_process.stop_timeout_ms

HERE = Path(__file__).parent
MODULE = "forked_process"
PATH = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])


class Server:
    """A fork server, and what it has forked."""

    def __init__(self, directory: Path) -> None:
        self.environment = {**os.environ, "PYTHONPATH": PATH}
        self.environment[PARENT_ENV] = str(os.getpid())
        self.errors = directory / "errors"
        self._out = directory / "out"
        with self.errors.open("ab") as errors:
            self.server = ForkServer([MODULE], environment=self.environment, errors=errors)
        eventually_sync(lambda: equal(self.server.ready, True))
        self._directory = directory
        self.pids: list[int] = []

    def fork(self, *args: str, **environment: str) -> int:
        with (self._directory / f"out-{len(self.pids)}").open("wb") as out:
            pid = self.server.fork(
                engine_process(MODULE, *args),
                directory=self._directory,
                environment={**self.environment, **environment},
                out=out,
            )
        self.pids.append(pid)
        return pid

    def said(self, pid: int) -> dict[str, Any]:
        """What a fork has said about itself."""
        path = self._directory / f"out-{self.pids.index(pid)}"

        def check() -> dict[str, Any]:
            text = path.read_text()
            assert text.endswith("\n"), text
            found: dict[str, Any] = json.loads(text)
            return found

        return eventually_sync(check)

    def close(self) -> None:
        self.server.close()
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def running(process: str) -> list[HostProcess]:
    return [found for found, _ in find_by_environment({PROCESS_ENV: process, PARENT_ENV: str(os.getpid())})]


def zombies() -> set[int]:
    return {child.pid for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


def test_a_fork_is_what_an_execution_would_have_been(server: Server, tmp_path: Path) -> None:
    long = "x" * 1000
    pid = server.fork("a", "b c", long, HERON_PROCESS="words", ÜMLAUT="ü\udcff")
    said = server.said(pid)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert said["pid"] == said["group"] == pid
    assert said["parent"] == os.getpid()
    assert said["arguments"] == ["a", "b c", long]
    assert said["directory"] == str(tmp_path)
    assert said["environment"] == {**server.environment, "HERON_PROCESS": "words", "ÜMLAUT": "ü\udcff"}
    assert said["command"] == said["original"] == [*engine_process(MODULE, "a", "b c", long)]
    assert "HERON_PROCESS=words" in said["seen"]
    assert said["main"] == MODULE
    assert said["descriptors"] == 3, "stdin, stdout, stderr: nothing of the server's"
    assert server.errors.read_text() == ""


def test_forks_draw_other_numbers_from_every_generator(server: Server) -> None:
    drawn = [number for _ in range(3) for number in server.said(server.fork())["numbers"]]
    assert len(drawn) >= 3 * 3, "Python's, numpy's and the one of ids"
    assert len(set(drawn)) == len(drawn), drawn


def test_the_profile_of_a_fork_has_the_cpu_time_of_its_main_thread(server: Server) -> None:
    assert server.said(server.fork("computes"))["cpu_ns"] > 0


def test_a_variable_that_the_server_has_is_not_in_a_fork_that_has_none(server: Server) -> None:
    del server.environment["PATH"]
    said = server.said(server.fork())
    assert "PATH" not in said["environment"]
    assert not [one for one in said["seen"] if one.startswith("PATH=")]


def test_what_says_whose_a_process_is_can_be_seen_also_where_there_is_no_room(server: Server) -> None:
    server.environment = {"HERON_TOPOLOGY_ID": "words-1", **server.environment, "LONG": "x" * 50_000}
    said = server.said(server.fork())
    assert said["environment"]["LONG"] == "x" * 50_000
    assert said["seen"][0] == "HERON_TOPOLOGY_ID=words-1"
    assert all(one in {f"{k}={v}" for k, v in said["environment"].items()} for one in said["seen"])


def test_forks_outlive_their_server_but_not_their_parent(tmp_path: Path) -> None:
    """Nor does the server."""
    program = f"""
import sys
sys.path[:0] = [{str(HERE)!r}]
from pathlib import Path
from test_fork_server import Server
directory = Path({str(tmp_path)!r})
one = Server(directory)
first = one.fork("waits")
one.said(first)
one.server.close()
other = Server(directory)
second = other.fork("waits")
other.said(second)
print(first, second, other.server.pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as asker:
        assert asker.stdout is not None
        found = [HostProcess.of(int(pid)) for pid in asker.stdout.readline().split()]
        assert len(found) == 3
        assert None not in found
        asker.kill()
    eventually_sync(lambda: equal([one for one in found if one is not None and one.alive], []))


def test_a_dead_server_is_no_answer(server: Server) -> None:
    os.kill(server.server.pid, signal.SIGKILL)
    with pytest.raises(UnavailableError, match="fork server"):
        server.fork()


def test_a_fork_goes_on_only_after_it_was_limited(server: Server, tmp_path: Path) -> None:
    limited: list[int] = []

    def limit(pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (99, 99))
        limited.append(pid)

    with (tmp_path / "out-0").open("wb") as out:
        pid = server.server.fork(
            engine_process(MODULE), directory=tmp_path, environment=server.environment, out=out, started=limit
        )
    server.pids.append(pid)
    assert limited == [pid]
    assert server.said(pid)["files"] == 99


def test_a_server_that_stands_still_leaves_no_process_when_it_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.said(server.fork())
    monkeypatch.setattr("heronpy.forkserver._client.ANSWER_S", 0.2)
    os.kill(server.server.pid, signal.SIGSTOP)
    with pytest.raises(UnavailableError, match="timed out"):
        server.fork("waits", HERON_PROCESS="late")
    monkeypatch.undo()
    os.kill(server.server.pid, signal.SIGCONT)
    said = server.said(server.fork(HERON_PROCESS="next"))  # which is forked after the late one, with the same output
    assert said["environment"]["HERON_PROCESS"] == "next"
    assert running("late") == []


def test_a_fork_that_cannot_become_what_was_asked_for_is_reaped(server: Server, tmp_path: Path) -> None:
    before = zombies()
    pid = server.fork()
    server.said(pid)
    os.waitpid(pid, 0)
    with (tmp_path / "out").open("wb") as out, pytest.raises(UnavailableError, match="ended, or could not fork"):
        server.server.fork(
            engine_process(MODULE), directory=tmp_path / "missing", environment=server.environment, out=out
        )
    assert "missing" in server.errors.read_text()
    server.close()
    assert zombies() == before


def test_an_environment_too_large_for_a_message_is_refused(server: Server) -> None:
    with pytest.raises(ValueError, match=r"have \d+,\d+ bytes"):
        server.fork(LARGE="x" * 200_000)
    assert server.said(server.fork())["parent"] == os.getpid(), "the server is as good as before"


def fork_servers(container: Container) -> list[HostProcess]:
    wanted = {TOPOLOGY_ENV: container.launch.topology_id, PROCESS_ENV: "fork-server-1"}
    return [process for process, _ in find_by_environment(wanted)]


def test_libraries_are_loaded_as_instances_want_it(container: Container) -> None:
    container.launch.make_log_dir(1)
    children = Children(container.launch, 1)
    argv = engine_process(MODULE)
    instances = [Command(id, argv, env={INSTANCE_ENV: id, "OPENBLAS_THREAD_TIMEOUT": "20"}) for id in ("a", "b")]
    children.follow([Command("stmgr-1", argv, 2, {"OPENBLAS_NUM_THREADS": "1"}), *instances])
    (server,) = fork_servers(container)
    environment = psutil.Process(server.pid).environ()
    children.close()
    assert environment["OPENBLAS_THREAD_TIMEOUT"] == "20"
    assert not environment.keys() & {INSTANCE_ENV, "OPENBLAS_NUM_THREADS"}


def test_where_the_fork_server_is_dead_processes_are_executed(
    container: Container, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYTHONPATH", PATH)
    container.launch.make_log_dir(1)
    children = Children(container.launch, 1)
    command = Command("words", engine_process(MODULE, "waits"))
    children.follow([command, command])
    assert not children.prepared, "nothing is imported in no time"
    eventually_sync(lambda: equal(children.prepared, True))
    pids = {children.start(command)}
    assert "executed" not in caplog.text
    (server,) = fork_servers(container)
    server.send(signal.SIGKILL)
    pids |= {children.start(command), children.start(command)}
    assert caplog.text.count("processes are executed for 60 s, not forked") == 1
    assert None not in pids
    dead: list[tuple[str, int, int]] = []

    def all_end() -> None:
        dead.extend(children.dead())
        assert {(pid, code) for _, pid, code in dead} == {(pid, -signal.SIGKILL) for pid in pids}

    for pid in pids:
        os.kill(pid or 0, signal.SIGKILL)
    eventually_sync(all_end)
    children.close()
    assert fork_servers(container) == []


def test_a_dead_fork_server_is_no_zombie_until_something_is_to_be_forked(container: Container) -> None:
    container.launch.make_log_dir(1)
    children = Children(container.launch, 1)
    command = Command("words", engine_process(MODULE))
    children.follow([command, command])
    (server,) = fork_servers(container)
    server.send(signal.SIGKILL)

    def reaped() -> None:
        assert children.dead() == []
        assert not psutil.pid_exists(server.pid)

    eventually_sync(reaped)
    children.close()


def test_what_is_orphaned_while_a_fork_is_waited_for_is_reaped(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is adopted like the fork: what user code has started, and does not end with it, say."""
    monkeypatch.setenv("PYTHONPATH", PATH)
    container.launch.make_log_dir(1)
    children = Children(container.launch, 1)
    command = Command("words", engine_process(MODULE))
    children.follow([command, command])
    eventually_sync(lambda: equal(children.prepared, True))
    send_fds = socket.send_fds
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE) as leaving:
        assert leaving.stdout is not None
        orphan = psutil.Process(int(leaving.stdout.readline()))

        def after_the_end_of_another(*args: Any) -> int:
            leaving.kill()
            leaving.wait()
            return send_fds(*args)

        monkeypatch.setattr(socket, "send_fds", after_the_end_of_another)
        pid = children.start(command)
    assert orphan.ppid() == os.getpid()
    orphan.kill()
    eventually_sync(lambda: equal(children.dead(), [("words", pid, 3)]))

    def reaped() -> None:
        assert children.dead() == []
        assert not orphan.is_running()

    eventually_sync(reaped)
    children.close()


def test_no_fork_server_is_started_where_none_is_wanted_or_one_process_alone(container: Container) -> None:
    container.launch.make_log_dir(1)
    command = Command("words", engine_process(MODULE, "waits"))
    other = Command("other", (sys.executable, "-c", "pass"))
    config = container.launch.config
    off = replace(config, executor=replace(config.executor, fork_server=False))
    for launch, commands in (
        (container.launch, [command, other, other]),
        (dataclasses.replace(container.launch, config=off), [command, command]),
    ):
        children = Children(launch, 1)
        children.follow(commands)
        assert fork_servers(container) == []
        children.close()


def test_processes_are_executed_where_the_fork_server_cannot_import_them(container: Container) -> None:
    container.launch.make_log_dir(1)
    children = Children(container.launch, 1)
    command = Command("words", engine_process("no_such_module"))
    children.follow([command, command])
    eventually_sync(lambda: equal(children.prepared, True))
    assert fork_servers(container) == []
    assert "No module named 'no_such_module'" in children.out_path("fork-server-1").read_text()
    pid = children.start(command)
    assert pid is not None
    eventually_sync(lambda: equal(children.dead(), [("words", pid, 1)]))


def test_processes_are_of_the_version_that_is_installed_when_they_start(
    container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade below a running container: a fork would import what is new beside what its server has imported."""

    def install(version: str) -> None:
        (tmp_path / "upgraded.py").write_text(f"import upgraded_part\nprint(upgraded_part.{version}, flush=True)\n")
        (tmp_path / "upgraded_part.py").write_text(f"{version} = 'of {version}'\n")

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), PATH]))
    container.launch.make_log_dir(1)
    children = Children(container.launch, 1)
    command = Command("words", engine_process("upgraded"))
    install("one")
    children.follow([command, command])
    eventually_sync(lambda: equal(children.prepared, True))

    def starts(version: str) -> None:
        pid = children.start(command)
        ended: list[tuple[str, int, int]] = []

        def has_ended() -> None:
            ended.extend(children.dead())
            assert ended

        eventually_sync(has_ended)
        assert ended == [("words", pid, 0)]
        assert children.out_path("words").read_text().endswith(f"of {version}\n")

    starts("one")
    assert len(fork_servers(container)) == 1
    install("another")
    eventually_sync(lambda: starts("another"))
    assert "another version is installed" in children.out_path("fork-server-1").read_text()
    children.close()


def test_processes_are_executed_where_imports_start_threads(
    container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As agents do that trace a process: a fork would not have them, but the locks that they hold."""
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), name='agent', daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), PATH]))
    container.launch.make_log_dir(1)
    children = Children(container.launch, 1)
    command = Command("words", engine_process(MODULE, "waits"))
    children.follow([command, command])
    eventually_sync(lambda: equal(children.prepared, True))
    assert fork_servers(container) == []
    assert "lack these threads: [<Thread(agent," in children.out_path("fork-server-1").read_text()
    children.close()


def test_a_fork_server_that_does_not_get_ready_is_given_up(
    container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), PATH]))
    monkeypatch.setattr("heronpy.forkserver._client.IMPORTS_S", 0.1)
    container.launch.make_log_dir(1)
    children = Children(container.launch, 1)
    command = Command("words", engine_process(MODULE))
    children.follow([command, command])
    eventually_sync(lambda: equal(children.prepared, True))
    assert "is not ready in time" in caplog.text
    assert fork_servers(container) == []


@pytest.mark.parametrize("ready", [False, True])
def test_a_fork_server_that_is_stopped_is_not_waited_for(
    container: Container, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ready: bool
) -> None:
    monkeypatch.setenv("PYTHONPATH", PATH)
    container.launch.make_log_dir(1)
    children = Children(container.launch, 1)
    command = Command("words", engine_process(MODULE))
    children.follow([command, command])
    if ready:
        eventually_sync(lambda: equal(children.prepared, True))
    (server,) = fork_servers(container)
    server.send(signal.SIGSTOP)
    eventually_sync(lambda: equal(server.stopped, True))
    assert children.prepared
    pid = children.start(command)
    assert "is stopped" in caplog.text
    assert pid is not None
    assert fork_servers(container) == []
    eventually_sync(lambda: equal(children.dead(), [("words", pid, 3)]))


def test_a_fork_server_ends_when_it_is_not_needed_any_more(container: Container) -> None:
    container.launch.make_log_dir(1)
    command = Command("words", engine_process(MODULE, "waits"))
    children = Children(container.launch, 1)
    children.follow([command, command])
    assert len(fork_servers(container)) == 1
    children.follow([])
    assert fork_servers(container) == []
