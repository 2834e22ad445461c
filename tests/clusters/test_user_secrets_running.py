"""Secrets of user code in topologies that run: user code reads them, and nobody else sees them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from process_scheduler import hosts
from secret_topology import secret_program

from heronpy import loader
from heronpy.errors import HeronError, NotFoundError
from heronpy.host import find_by_environment
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import kill, restart, status, submit
from heronpy.testing import eventually_sync

FIRST, SECOND = "Swordfish-mit-Öl 1", "Swordfish-mit-Öl 2"
WITHIN_S = 240.0


class Site:
    """A cluster, and a secret beside it."""

    def __init__(self, directory: Path, scheduler: str) -> None:
        self.directory, self.scheduler = directory, scheduler
        self.file = directory / "elsewhere" / "db"
        self.file.parent.mkdir()
        self.file.touch(mode=0o600)
        self.file.write_text(f"{FIRST}\n")
        self.root = directory / "hosts"
        self.root.mkdir()
        self.conf = directory / "conf"
        (self.conf / "farm").mkdir(parents=True)
        values: dict[str, Any] = {
            "heron.class.scheduler": scheduler,
            "heron.class.state.manager": "file",
            "heron.statemgr.root.path": str(directory / "state"),
            "heron.metrics.export.interval.ms": 500,
            "heron.executor.stop.timeout.ms": 5000,
        }
        if scheduler == "processes":
            values["heron.scheduler.processes.directory"] = str(self.root)
            values["heron.uploader.url"] = str(directory / "packages")
        (self.conf / "farm/cluster.yaml").write_text(yaml.safe_dump(values))

    @property
    def home(self) -> Path:
        return self.directory / "home"

    def submit(self) -> Launch:
        definition = loader.define(str(secret_program(self.directory)), "-", [])
        properties = {"topology.secrets": {"db": f"file:{self.file}"}}
        where: dict[str, Any] = {"home": self.home, "config_path": self.conf, "properties": properties}
        return submit(definition, cluster="farm", role="me", **where)

    def wait_for(self, secret: str) -> None:
        def check() -> None:
            assert (self.directory / "digest").exists(), [host.said() + host.log()[-2000:] for host in hosts(self.root)]
            assert (self.directory / "digest").read_text() == hashlib.sha256(secret.encode()).hexdigest()

        eventually_sync(check, within_s=WITHIN_S)

    def places_of(self, text: str) -> list[str]:
        """Files and processes in which a text is, but for those that are meant to have it."""
        found = []
        for path in self.directory.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and path != self.file and text.encode() in path.read_bytes():
                    found.append(str(path.relative_to(self.directory)))
        for process, _ in find_by_environment({"HERON_TOPOLOGY_ID": self.launch.topology_id}):
            for name in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    if text.encode() in Path(f"/proc/{process.pid}/{name}").read_bytes():
                        found.append(f"{process.pid} {name}")
        return sorted(found)

    launch: Launch


@pytest.fixture(params=["local", "processes"])
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Site]:
    info = tmp_path / "installed/processes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: processes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[heron.schedulers]\nprocesses = process_scheduler:ProcessScheduler\n")
    monkeypatch.syspath_prepend(str(info.parent))
    site = Site(tmp_path, request.param)
    site.launch = site.submit()
    try:
        yield site
    finally:
        kill(site.launch)
        for host in hosts(site.root):
            host.send(signal.SIGKILL)


def test_user_code_has_it_and_nobody_else_sees_it(site: Site) -> None:
    site.wait_for(FIRST)

    def reported() -> None:
        try:
            exceptions = status(site.launch).exceptions
        except HeronError as e:
            raise AssertionError(str(e)) from e
        assert any("cannot connect with ********" in one.report.stacktrace for one in exceptions)
        assert not any(FIRST in str(one) for one in exceptions)

    eventually_sync(reported, within_s=WITHIN_S)

    def only_where_it_is_meant_to_be(secret: str, files: Callable[[str], bool]) -> None:
        unexpected = [place for place in site.places_of(secret) if not files(place)]
        assert unexpected == []

    def meant(place: str) -> bool:
        return place.endswith(("user-secrets/db", "bootstrap.json"))

    only_where_it_is_meant_to_be(FIRST, meant)
    logs = [path.read_text() for path in site.directory.rglob("*numbers*.log")]
    assert any("the password is ********" in text for text in logs)
    with open_statemgr(site.launch.statemgr) as state:
        for kind in Kind:
            for node in state.list(kind):
                assert FIRST.encode() not in (state.get(kind, node) or b"")
    environ = {**os.environ, "HERON_HOME": str(site.home), "PYTHONPATH": str(site.directory / "installed")}
    command = [
        sys.executable,
        "-m",
        "heronpy.cli",
        "status",
        "--config",
        "--config-path",
        str(site.conf),
        "farm/me/default",
        "secretive",
    ]
    environ["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent) + os.pathsep + os.environ.get("PYTHONPATH", "")
    shown = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert (shown.returncode, FIRST in shown.stdout + shown.stderr) == (0, False), shown.stderr

    site.file.write_text(f"{SECOND}\n")
    assert restart(site.launch) == ["secret 'db' is renewed"]
    site.wait_for(SECOND)
    only_where_it_is_meant_to_be(SECOND, meant)
    site.file.unlink()
    (said,) = restart(site.launch, 1)
    assert said.endswith("it stays as it is")
    site.file.touch(mode=0o600)
    kill(site.launch)
    assert [place for place in site.places_of(SECOND) if not place.endswith("bootstrap.json")] == []


@pytest.mark.parametrize("site", ["local"], indirect=True)
def test_one_that_is_missing_leaves_nothing_half_submitted(site: Site) -> None:
    kill(site.launch)
    site.file.unlink()
    with pytest.raises(NotFoundError, match=r"secret 'db': there is no file .*/elsewhere/db"):
        site.submit()
    assert list((site.home / "topologies").rglob("launch.json")) == []
    with open_statemgr(site.launch.statemgr) as state:
        assert state.list(Kind.TOPOLOGIES) == []
