"""Logs and processes of containers that share nothing with their submitter: while they run, and afterwards."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import test_containers
from test_containers import WITHIN_S, Running

from heronpy import submit
from heronpy.cli.parts import collect_status, files, logs, memory, stacks
from heronpy.errors import NotFoundError
from heronpy.shell.stored import stored_containers
from heronpy.testing import eventually, eventually_sync

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
from heron_tracker import StateManagerConfig
from test_tracker_state_managers import told, tracking

pytestmark = pytest.mark.timeout(2400)
zookeeper, running = test_containers.zookeeper, test_containers.running
STORE = {"heron.logs.upload.uri": "/tmp/not-yet"}


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    STORE["heron.logs.upload.uri"] = str(tmp_path_factory.mktemp("store"))
    return Path(STORE["heron.logs.upload.uri"])


@pytest.mark.parametrize("running", [STORE], indirect=True)
async def test_every_host_is_seen_and_heard_and_its_logs_outlive_it(
    running: Running, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = running.launch
    assert launch.config.shell.enabled, "its containers are on other hosts"
    numbers = [0, 1, 2]
    assert not any(launch.container_dir(n).exists() for n in numbers)
    instance = next(id for id in _instances(running) if id.startswith("container_1_"))
    async with tracking(StateManagerConfig("farm", launch.statemgr)) as tracker:
        topology = {"cluster": "farm", "role": "me", "environ": launch.environ, "topology": launch.topology}

        async def seen_log(n: int) -> None:
            answer = await tracker.get("/topologies/container/filestats", params={**topology, "container": n})
            assert f"heron-shell-{n}.log" in told(answer)

        for n in numbers:
            await eventually(partial(seen_log, n), within_s=WITHIN_S)
        one = {**topology, "instance": instance}
        headers = {"x-heron-request": "1"}

        async def looked(kind: str, seen: str) -> None:
            assert seen in told(await tracker.post(f"/topologies/{kind}", params=one, headers=headers))["stdout"]

        for kind, seen in (("jstack", "instance"), ("jmap", "VmRSS"), ("histo", "builtins"), ("pmap", "[heap]")):
            await eventually(partial(looked, kind, seen), within_s=WITHIN_S)

        async def profiled() -> None:
            answer = await tracker.post("/topologies/profile", params={**one, "seconds": 1}, headers=headers)
            assert told(answer)["samples"] > 0

        await eventually(profiled, within_s=WITHIN_S)
    _check_cli(running, instance, capfd, monkeypatch)
    submit.kill(launch)
    uri = launch.config.logging.upload_uri
    assert stored_containers(uri, launch.topology, launch.topology_id) == numbers


def _instances(running: Running) -> list[str]:
    _, packing = submit.plans(running.launch)
    return [i.instance_id(c.id) for c in packing.containers for i in c.instances]


def _check_cli(
    running: Running, instance: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.cli._logs.resolve", lambda words, **_: (running.launch, None))
    monkeypatch.setattr("heronpy.cli._inside.resolve", lambda words, **_: (running.launch, words[0]))
    failed: list[BaseException] = []

    def all_logs() -> None:
        logs(["x"], follow=False, lines=None, container=None, grep="serves at", since="", raw=False)
        out = capfd.readouterr().out
        for n in (0, 1, 2):
            assert f"heron-shell-{n} serves at" in out

    def all_run() -> None:
        found, _ = collect_status(running.launch, now_s=time.time())
        states = {process["id"]: process["state"] for process in found["processes"]}
        assert (states[instance], states["tmaster"], states["stmgr-2"]) == ("running",) * 3
        assert found["silent"] == []

    def inside() -> None:
        for process in (instance, "stmgr-2", "tmaster"):
            stacks([process])
            assert "MainThread" in capfd.readouterr().out
            memory([process], objects=False, mappings=False)
            assert "VmRSS" in capfd.readouterr().out
        files(["."], container=2)
        assert "stmgr-2.log" in capfd.readouterr().out
        files(["stmgr-2.log"], container=2)
        assert "stmgr-2" in capfd.readouterr().out
        with pytest.raises(NotFoundError, match=r"did you mean 'stmgr-2\.log'"):
            files(["stmgr-2.lag"], container=2)
        with pytest.raises(NotFoundError, match="no container 9 that has started: it has 0, 1, 2"):
            files(["."], container=9)

    def commands() -> None:  # they run event loops of their own
        try:
            for check in (all_logs, all_run, inside):
                eventually_sync(check, within_s=WITHIN_S)
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=commands)
    thread.start()
    thread.join()
    assert not failed, failed
