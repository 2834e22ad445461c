"""The Tracker's API for log files, and for what looks into live processes."""

from __future__ import annotations

import asyncio
import html
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
import served_tracker
from served_tracker import SPOUTS, Asking, Served

from heronpy.errors import UnavailableError
from heronpy.host import HostProcess, PidFiles
from heronpy.shell import Container, parts
from heronpy.testing import TopologyHandle, eventually, eventually_sync

ask, cluster = served_tracker.ask, served_tracker.cluster
served, topology = served_tracker.served, served_tracker.topology


def test_a_log_file_is_read_in_parts(ask: Asking, topology: TopologyHandle) -> None:
    place = {"container": 1, "path": f"log-files/{SPOUTS[0]}.log"}
    log = topology.launch.log_dir(1) / f"{SPOUTS[0]}.log"

    def logged() -> None:
        assert "it begins" in log.read_text()

    eventually_sync(logged)
    end = ask("container/filedata", offset=-1, length=-1, **place)
    assert end == {"offset": end["offset"], "length": 0, "data": ""}
    content = log.read_bytes()[: end["offset"]]
    whole = ask("container/filedata", offset=0, length=-1, **place)
    assert whole["data"].startswith(html.escape(content.decode()))
    assert "&lt;b&gt;heron &amp; stork&lt;/b&gt; ☂" in whole["data"]
    parts, offset = "", 0
    while offset < end["offset"]:
        part = ask("containerfiledata", offset=offset, length=min(7, end["offset"] - offset), **place)
        assert part["length"] > 0
        parts, offset = parts + part["data"], offset + part["length"]
    assert parts == html.escape(content.decode())
    assert "beyond the end" in ask("container/filedata", status=400, offset=1 << 90, **place)
    assert "numbers of bytes" in ask("container/filedata", status=400, offset=-2, **place)


def test_a_log_file_is_downloaded(ask: Asking, topology: TopologyHandle) -> None:
    name = f"{SPOUTS[0]}.log"
    for path in ("container/filedownload", "containerfiledownload"):
        response = ask.http.get(f"/topologies/{path}", params={**ask.common, "container": 1, "path": name})
        assert response.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert (topology.launch.log_dir(1) / name).read_bytes().startswith(response.content)
        assert b"it begins" in response.content
    listed = ask("container/filestats", container=1, path="log-files")
    assert listed[name]["path"] == f"log-files/{name}"
    assert not listed[name]["is_dir"]
    assert listed[name]["formatted_stat"].startswith("-rw")
    assert ask("containerfilestats", container=0).keys() >= {"tmaster.log"}


def test_nothing_outside_of_log_files_can_be_read(ask: Asking, topology: TopologyHandle, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    logs = topology.launch.log_dir(1)
    (logs / "link").symlink_to(secret)
    (logs / "folder").symlink_to(tmp_path)
    os.mkfifo(logs / "pipe")
    paths = [
        "../../token",
        "log-files/../../../token",
        "./../launch.json",
        "..",
        "../log-files-other",
        "link",
        "folder/secret",
        "folder/../../token",
        "pipe",
        "/etc/passwd",
        str(topology.launch.dir / "token"),
        "//etc/passwd",
        "~/x",
        "a\0b",
        "",
        "x" * 5000,
        "/".join(["a"] * 300),
        "log-files",
        "..\\..\\token",
        "%2e%2e/%2e%2e/token",
        "\udcff",
    ]
    try:
        for path in paths:
            for verb in ("filedata", "filedownload"):
                query = {**ask.common, "container": 1, "path": path.encode(errors="surrogateescape")}
                response = ask.http.get(f"/topologies/container/{verb}", params=httpx.QueryParams(query))
                assert response.status_code in (400, 404), path
                assert "swordfish" not in response.text
                assert topology.launch.token() not in response.text
        for path in ("..", "../..", "folder", "/etc", "/", "../../.."):
            assert ask.http.get(
                "/topologies/container/filestats", params={**ask.common, "container": 1, "path": path}
            ).status_code in (400, 404)
        assert ask("container/filestats", container=1)["link"]["is_dir"] is False
    finally:
        for name in ("link", "folder", "pipe"):
            (logs / name).unlink()


def test_a_live_instance_is_looked_into(ask: Asking, topology: TopologyHandle) -> None:
    process = topology.processes()[SPOUTS[0]]
    assert ask("pid", instance=SPOUTS[0]) == {"command": f"pid {SPOUTS[0]}", "stdout": str(process), "stderr": ""}
    stacks = ask.post("jstack", instance=SPOUTS[0])
    assert "run" in stacks["stdout"]
    memory = ask.post("jmap", instance=SPOUTS[0])
    assert f"kill -USR2 {process}" == memory["command"]
    assert "VmRSS:" in memory["stdout"]
    objects = ask.post("histo", instance=SPOUTS[0])["stdout"].splitlines()
    assert objects[0].split() == ["count", "bytes", "type"]
    assert any(line.endswith(" builtins.dict") for line in objects)
    assert topology.processes()[SPOUTS[0]] == process
    assert "there is no /topologies/jstack" in ask("jstack", status=404, instance=SPOUTS[0])  # a GET costs nothing


@pytest.mark.parametrize("process", [SPOUTS[0], "stmgr-1"])
def test_a_live_process_is_profiled_and_goes_on(
    served: Served, ask: Asking, topology: TopologyHandle, process: str
) -> None:
    pid = topology.processes()[process]

    def profiled() -> Any:
        profile = ask.post("profile", instance=process, seconds=1)
        assert profile["samples"] > 5, "in a second in which it runs"
        return profile

    profile = eventually_sync(profiled)
    assert (profile["instance"], profile["pid"]) == (process, pid)
    assert 0 < profile["cost_cpu_s"] / profile["seconds"] < 0.1
    assert {"MainThread", *(["task"] if process in SPOUTS else [])} <= {stack["thread"] for stack in profile["stacks"]}
    functions = {profile["frames"][n]["function"] for stack in profile["stacks"] for n in stack["frames"]}
    assert "main" in functions
    assert topology.processes()[process] == pid
    assert served.http.get("/topologies/profile", params={**ask.common, "instance": process}).status_code == 404
    assert served.http.post("/topologies/profile", headers={"authorization": ""}).status_code == 401


@pytest.mark.parametrize(
    ("params", "status", "reason"),
    [
        ({"instance": "stmgr-9"}, 404, "has no instance 'stmgr-9'"),
        ({"instance": SPOUTS[0], "seconds": 31}, 400, "parameter seconds"),
        ({"instance": SPOUTS[0], "seconds": 0}, 400, "parameter seconds"),
    ],
)
def test_profiles_that_cannot_be_are_refused(
    served: Served, ask: Asking, params: dict[str, Any], status: int, reason: str
) -> None:
    answer = served.http.post("/topologies/profile", params={**ask.common, **params})
    assert (answer.status_code, reason in answer.text) == (status, True), answer.text


async def test_one_process_is_profiled_once_at_a_time(served: Served, ask: Asking) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=120, headers=served.auth) as client:
        params = {**ask.common, "instance": SPOUTS[0], "seconds": 2}

        async def at_once() -> None:
            answers = await asyncio.gather(*(client.post("/topologies/profile", params=params) for _ in range(3)))
            assert sorted(answer.status_code for answer in answers) == [200, 503, 503], "they came at the same time"
            assert any("is being profiled" in answer.text for answer in answers)

        await eventually(at_once)


async def test_an_instance_tells_its_stacks_itself_where_py_spy_may_not_look(topology: TopologyHandle) -> None:
    launch = topology.launch
    found = Container(launch.topology, launch.topology_id, 1, launch.dir)
    for spy, why in ((None, "py-spy is not installed"), ("/bin/false", "py-spy: no reason given")):
        told = await asyncio.to_thread(parts.jstack, found, SPOUTS[1], spy)
        assert told.command == f"kill -USR1 {topology.processes()[SPOUTS[1]]}"
        assert told.stdout.count("(most recent call first)") >= 2
        assert "heronpy/instance/_" in told.stdout
        assert told.stderr == why


async def test_a_process_that_is_not_the_instance_gets_no_signal(topology: TopologyHandle) -> None:
    launch = topology.launch
    found = Container(launch.topology, launch.topology_id, 1, launch.dir)
    stranger = HostProcess.of(os.getpid())
    assert stranger is not None
    record = launch.container_dir(1) / "pids" / f"{SPOUTS[1]}.pid"
    before = record.read_text()  # a small file
    try:
        PidFiles(launch.container_dir(1)).started(SPOUTS[1], stranger)  # user code could do that
        for look in (parts.pid, parts.jmap, parts.histo):
            with pytest.raises(UnavailableError, match="is not container_1_numbers_2"):
                await asyncio.to_thread(look, found, SPOUTS[1])
    finally:
        record.write_text(before)  # a small file
