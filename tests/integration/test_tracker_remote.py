"""A Tracker and a container whose files are on another host: everything is answered through its heron-shell."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest import mock

import httpx
import pytest
from heron_tracker import StateManagerConfig
from remote_container import INSTANCE, enter, live_instance, on_another_host
from test_tracker_state_managers import record, tracking, words
from topology_on_disk import EngineProcess, launch_in

from heronpy.runtime import Launch, running
from heronpy.shell import Container
from heronpy.shell.client import RemoteShell
from heronpy.shell.service import HeronShell
from heronpy.shell.stored import open_log_store, store_logs
from heronpy.statemgr import Kind, StateManager, container_node, open_statemgr
from heronpy.testing import eventually

FILE = {**words("local"), "container": "1"}
PROCESS = {**words("local"), "instance": INSTANCE}


@pytest.fixture
def submitted(tmp_path: Path) -> Launch:
    return launch_in(tmp_path)


@pytest.fixture
def state(submitted: Launch) -> Iterator[StateManager]:
    with open_statemgr(submitted.statemgr) as state:
        record(state, submitted, cluster="local")
        yield state


@pytest.fixture
def remote(submitted: Launch, tmp_path: Path) -> Launch:
    return on_another_host(submitted, tmp_path / "elsewhere")


@pytest.fixture
async def shell(remote: Launch, state: StateManager) -> AsyncIterator[HeronShell]:
    async with running(HeronShell(remote, 1)) as service:
        enter(state, remote, endpoint=service.address)
        yield service


@pytest.fixture
async def tracker(submitted: Launch, state: StateManager) -> AsyncIterator[httpx.AsyncClient]:
    async with tracking(StateManagerConfig("local", submitted.statemgr)) as tracker:
        yield tracker


async def test_logs_of_another_host_are_listed_read_and_downloaded(
    tracker: httpx.AsyncClient, shell: HeronShell, remote: Launch
) -> None:
    log = remote.log_dir(1) / "stmgr-1.log"
    log.write_bytes("<one>\n☂ two\n".encode() * 200_000)
    listed = (await tracker.get("/topologies/container/filestats", params=FILE)).json()
    assert listed["stmgr-1.log"]["size"] == log.stat().st_size
    part = (
        await tracker.get("/topologies/container/filedata", params={**FILE, "path": "stmgr-1.log", "length": "8"})
    ).json()
    assert part == {"offset": 0, "length": 6, "data": "&lt;one&gt;\n"}, "a character is not cut"
    whole = await tracker.get("/topologies/container/filedownload", params={**FILE, "path": "stmgr-1.log"})
    assert whole.content == log.read_bytes()
    for path, status in (("../secret", 404), ("/etc/passwd", 400), ("none.log", 404)):
        answer = await tracker.get("/topologies/container/filedata", params={**FILE, "path": path})
        assert answer.status_code == status, answer.text


async def test_logs_of_another_host_are_searched_in_steps(
    tracker: httpx.AsyncClient, shell: HeronShell, remote: Launch
) -> None:
    (remote.log_dir(1) / "stmgr-1.log.1").write_text("needle 0\n")
    (remote.log_dir(1) / "stmgr-1.log").write_text("".join(f"needle {n}\nhay\n" for n in range(1, 1200)))
    params = {**FILE, "text": "NEEDLE", "ignore_case": "true"}
    found: list[str] = []
    while True:
        answer = (await tracker.get("/topologies/container/filesearch", params=params)).json()
        found += [match["line"] for match in answer["matches"]]
        if answer["complete"]:
            break
        params |= {key: str(answer[key]) for key in ("after_path", "after_offset", "after_inode")}
    assert found == [f"needle {n}" for n in range(1200)]
    bad = await tracker.get("/topologies/container/filesearch", params={**FILE, "text": ""})
    assert bad.status_code == 400


async def test_a_process_of_another_host_is_looked_into_and_profiled(
    tracker: httpx.AsyncClient, shell: HeronShell, remote: Launch
) -> None:
    with live_instance(remote) as pid:
        assert (await tracker.get("/topologies/pid", params=PROCESS)).json()["stdout"] == str(pid)
        headers = {"x-heron-request": "1"}
        for kind, seen in (("jstack", "asyncio"), ("jmap", "VmRSS"), ("histo", "bytes"), ("pmap", "[heap]")):
            answer = await tracker.post(f"/topologies/{kind}", params=PROCESS, headers=headers)
            assert answer.status_code == 200, answer.text
            assert seen in answer.json()["stdout"]
        answer = await tracker.post("/topologies/profile", params={**PROCESS, "seconds": "0.5"}, headers=headers)
        assert answer.status_code == 200, answer.text
        assert (answer.json()["pid"], answer.json()["instance"]) == (pid, INSTANCE)
        assert answer.json()["samples"] > 0


async def test_one_without_a_heron_shell_says_so(
    tracker: httpx.AsyncClient, state: StateManager, submitted: Launch
) -> None:
    enter(state, submitted)
    for path, params in (("container/filestats", FILE), ("pid", PROCESS)):
        answer = await tracker.get(f"/topologies/{path}", params=params)
        assert answer.status_code == 501, answer.text
        assert "it runs on far-host, and it has no heron-shell" in answer.json()


async def test_only_the_first_callers_wait_for_one_that_does_not_answer(
    tracker: httpx.AsyncClient, state: StateManager, remote: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.shell.client.CALL_TIMEOUT_S", 1.0)
    with EngineProcess("shell", remote, 1) as process:
        endpoint = await _address(remote)
        enter(state, remote, endpoint=endpoint)

        async def answered() -> None:
            answer = await tracker.get("/topologies/container/filestats", params=FILE)
            assert answer.status_code == 200, answer.text

        await eventually(answered)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            asked = mock.AsyncMock(wraps=RemoteShell.files)
            monkeypatch.setattr(RemoteShell, "files", lambda shell, path: asked(shell, path))
            first = await tracker.get("/topologies/container/filestats", params=FILE)
            assert first.status_code == 503
            assert f"its heron-shell at {endpoint} does not answer since 2" in first.json()
            for _ in range(20):
                answer = await tracker.get("/topologies/container/filestats", params=FILE)
                assert answer.status_code == 503
                assert "no answer within 1 s" in answer.json()
            assert asked.call_count == 1, "each would have waited for a second"
            others = await tracker.get("/topologies/container/filestats", params={**FILE, "container": "0"})
            assert others.status_code == 501, "another container is another matter"
        finally:
            os.kill(process.pid, signal.SIGCONT)
        await eventually(answered)


async def _address(remote: Launch) -> str:
    log = remote.log_dir(1) / "heron-shell-1.log"

    async def served() -> None:
        assert log.exists()
        assert "serves at" in log.read_text()  # a small file

    await eventually(served)
    return log.read_text().rpartition("serves at ")[2].split()[0]  # a small file


async def test_a_container_that_moves_is_asked_where_it_is(
    tracker: httpx.AsyncClient, state: StateManager, remote: Launch
) -> None:
    (remote.log_dir(1) / "a.log").write_text("one\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        enter(state, remote, endpoint=f"127.0.0.1:{taken.getsockname()[1]}")
        assert (await tracker.get("/topologies/container/filestats", params=FILE)).status_code == 503
        async with running(HeronShell(remote, 1)) as service:
            enter(state, remote, endpoint=service.address, incarnation=2)

            async def answered() -> None:
                answer = await tracker.get("/topologies/container/filestats", params=FILE)
                assert "a.log" in answer.json()

            await eventually(answered)


async def test_an_impostor_at_its_address_gets_nothing(
    tracker: httpx.AsyncClient, state: StateManager, remote: Launch, submitted: Launch
) -> None:
    received: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(65536))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        enter(state, remote, endpoint=f"127.0.0.1:{port}")
        assert (await tracker.get("/topologies/container/filestats", params=FILE)).status_code == 503
    assert received
    assert not any(submitted.token().encode() in data for data in received)


async def test_the_record_of_an_earlier_topology_is_not_believed(
    tracker: httpx.AsyncClient, state: StateManager, shell: HeronShell, remote: Launch
) -> None:
    name = container_node("words", 1)
    value = state.get(Kind.CONTAINERS, name)
    assert value is not None
    state.set(Kind.CONTAINERS, name, value.replace(b"words-1", b"words-0"))
    answer = await tracker.get("/topologies/container/filestats", params=FILE)
    assert answer.status_code == 501, answer.text
    state.set(Kind.CONTAINERS, name, b"\xff\xff")
    answer = await tracker.get("/topologies/container/filestats", params=FILE)
    assert answer.status_code in (501, 503), answer.text


async def test_logs_of_a_container_that_has_ended_are_found_where_they_are_stored(
    tmp_path: Path,
) -> None:
    submitted = launch_in(tmp_path, {"heron.logs.upload.uri": str(tmp_path / "store")})
    remote = on_another_host(submitted, tmp_path / "elsewhere")
    (remote.log_dir(1) / "a.log").write_text("the end\n")
    place = Container(remote.topology, remote.topology_id, 1, remote.dir)
    with open_statemgr(submitted.statemgr) as state:
        record(state, submitted, cluster="local")
        enter(state, remote, endpoint="127.0.0.1:1", incarnation=7)
        async with tracking(StateManagerConfig("local", submitted.statemgr)) as tracker:
            silent = await tracker.get("/topologies/container/filestats", params=FILE)
            assert silent.status_code == 503, silent.text
            with open_log_store(str(tmp_path / "store"), remote.topology, remote.topology_id) as storage:
                assert store_logs(place, storage, 6) == []
                silent = await tracker.get("/topologies/container/filestats", params=FILE)
                assert silent.status_code == 503, "an earlier incarnation says nothing of this one"
                assert store_logs(place, storage, 7) == []
            listed = (await tracker.get("/topologies/container/filestats", params=FILE)).json()
            assert listed.keys() == {"a.log", "6"}
            part = (await tracker.get("/topologies/container/filedata", params={**FILE, "path": "a.log"})).json()
            assert part["data"] == "the end\n"
            looked = await tracker.get("/topologies/pid", params=PROCESS)
            assert looked.status_code == 503, looked.text
            gone = await tracker.get("/topologies/container/filestats", params={**FILE, "container": "5"})
            assert gone.status_code == 404
            assert "has no container 5" in gone.json()
            with open_log_store(str(tmp_path / "store"), remote.topology, remote.topology_id) as storage:
                storage.put(f"container_5/{7:020d}/b.log", [b"removed by an update"])
            listed = (await tracker.get("/topologies/container/filestats", params={**FILE, "container": "5"})).json()
            assert listed.keys() == {"b.log"}
