"""Who is answered by a Tracker: its own names, its token, deliberate changes; and what it never does for a stranger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from heron_tracker import StateManagerConfig, TrackerConfig, create_app

from heronpy.runtime import StatemgrSpec

TRACKER = [sys.executable, "-m", "heronpy.cli", "tracker", "--port", "0", "--json"]


class Process:
    """`heron tracker` as a process."""

    def __init__(self, home: Path, *args: str) -> None:
        self._process = subprocess.Popen(
            [*TRACKER, *args], env={**os.environ, "HERON_HOME": str(home)}, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.told: dict[str, Any] = json.loads(self._process.stdout.readline())

    def stop(self) -> int:
        self._process.send_signal(signal.SIGINT)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait(300)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("home"))
    yield process
    assert process.stop() == 0


def client(tmp_path: Path, **more: Any) -> httpx.AsyncClient:
    """Asks a Tracker in this process, of which no state manager answers."""
    spec = StatemgrSpec(root=str(tmp_path / "state"))
    app = create_app(TrackerConfig(statemgrs=(StateManagerConfig("local", spec),), **more))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8888", timeout=120)


def test_a_tracker_asks_for_a_token_by_default_and_its_login_url_has_it(started: Process) -> None:
    url, file = started.told["url"], Path(started.told["token_file"])
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    assert len(token) == 64
    assert started.told["login_url"] == f"{url}/login.html#{token}"
    assert httpx.get(f"{url}/clusters").status_code == 401
    assert httpx.get(f"{url}/clusters", headers={"authorization": f"Bearer {token}"}).json() == ["local"]
    page = httpx.get(f"{url}/login.html")
    assert (page.status_code, token in page.text) == (200, False)


def test_the_token_stays_the_same_from_start_to_start(started: Process) -> None:
    second = Process(Path(started.told["token_file"]).parent)
    try:
        assert second.told["login_url"].partition("#")[2] == started.told["login_url"].partition("#")[2]
    finally:
        assert second.stop() == 0


def test_no_token_is_a_choice(tmp_path: Path) -> None:
    process = Process(tmp_path, "--no-token")
    try:
        assert process.told["login_url"] == process.told["url"]
        assert httpx.get(f"{process.told['url']}/clusters").json() == ["local"]
        assert not (tmp_path / "tracker.token").exists()
    finally:
        assert process.stop() == 0


@pytest.mark.parametrize("planted", ["link", "readable", "directory"])
def test_a_token_file_that_others_planted_is_refused(tmp_path: Path, planted: str) -> None:
    token = tmp_path / "tracker.token"
    (tmp_path / "private").write_text("swordfish")
    if planted == "link":
        token.symlink_to(tmp_path / "private")
    elif planted == "readable":
        token.write_text("swordfish")
    else:
        token.mkdir()
    done = subprocess.run(TRACKER, env={**os.environ, "HERON_HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "tracker.token cannot be read" in line
    assert "swordfish" not in line


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8888", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("heron.localhost:8888", 200),
        ("[::1]:8888", 200),
        ("192.0.2.7", 200),
        ("tracker.example.com:443", 200),
        ("tracker.example.com.", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example", 421),
        ("localhost.attacker.example", 421),
        ("tracker.example.com.attacker.example", 421),
        ("127.0.0.1@attacker.example", 421),
        ("", 421),
        ("[", 421),
    ],
)
async def test_a_request_by_a_name_that_is_not_the_trackers_is_refused(tmp_path: Path, host: str, status: int) -> None:
    async with client(tmp_path, hosts=("tracker.example.com",)) as tracker:
        for path in ("/clusters", "/health", "/docs", "/"):
            answer = await tracker.get(path, headers={"host": host})
            assert answer.status_code == status, path
            assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"content-type": "application/x-www-form-urlencoded"}, 403),
        ({"x-heron-request": "1", "origin": "http://attacker.example"}, 403),
        ({"x-heron-request": "1", "origin": "null"}, 403),
        ({"x-heron-request": "1", "origin": "http://["}, 403),
        ({"x-heron-request": "1", "origin": "http://127.0.0.1:9999"}, 403),
        ({"x-heron-request": "1"}, 404),
        ({"x-heron-request": "1", "origin": "http://127.0.0.1:8888"}, 404),
    ],
)
async def test_without_a_token_a_page_of_another_site_changes_nothing(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with client(tmp_path, actions=True) as tracker:
        for path in ("local/me/default/words/kill", "jstack?cluster=a&environ=b&topology=c&instance=d"):
            answer = await tracker.post(f"/topologies/{path}", headers=headers)
            assert answer.status_code == status, answer.text


async def test_credentials_that_a_browser_adds_by_itself_change_nothing(tmp_path: Path) -> None:
    async with client(tmp_path, actions=True, token="swordfish") as tracker:
        path = "/topologies/local/me/default/words/kill"
        assert (await tracker.post(path, auth=("me", "swordfish"))).status_code == 403
        assert (await tracker.post(path, headers={"authorization": "Bearer swordfish"})).status_code == 404
        assert (await tracker.post(path, headers={"authorization": "Bearer x"})).status_code == 401


async def test_actions_are_off_unless_they_are_configured(tmp_path: Path) -> None:
    for actions in (False, True):
        async with client(tmp_path, actions=actions) as tracker:
            assert (await tracker.get("/version")).json()["actions"] is actions


async def test_profiling_by_get_is_a_choice(tmp_path: Path) -> None:
    params = {"cluster": "a", "environ": "b", "topology": "c", "instance": "i"}
    for profiling_get, reason in ((False, "there is no /topologies/"), (True, "no topology 'c' in a/b")):
        async with client(tmp_path, profiling_get=profiling_get) as tracker:
            for kind in ("jstack", "jmap", "histo"):
                answer = await tracker.get(f"/topologies/{kind}", params=params)
                assert (answer.status_code, reason in answer.text) == (404, True)


async def test_the_api_page_needs_no_other_host_and_no_script(tmp_path: Path) -> None:
    async with client(tmp_path, token="swordfish") as tracker:
        page = await tracker.get("/docs")
        assert page.status_code == 200
        assert "<h2>GET /topologies/physicalplan</h2>" in page.text
        assert "<h2>POST /topologies/{cluster}/{role}/{environ}/{name}/{action}</h2>" in page.text
        assert "<script" not in page.text
        assert "http" not in page.text.replace("`http_sd_configs`", "")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert (await tracker.get("/openapi.json")).json()["info"]["title"] == "heron tracker"
        assert (await tracker.get("/redoc")).status_code == 401
