"""A topology whose state manager wants a user and a certificate: it finds both in its own directory."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from heron_tracker import StateManagerConfig, TrackerConfig, create_app

from heronpy.errors import StateError
from heronpy.runtime import SECRETS_DIR, StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster, TopologyHandle, eventually, eventually_sync
from heronpy.testing.certificates import make_certificates
from heronpy.testing.etcd import EtcdServer, etcd_missing
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing

NUMBERS = Path(__file__).parents[1] / "integration" / "numbers_topology.py"
PASSWORD = "swordfish-of-the-test"


def private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@pytest.fixture(scope="module", params=["zookeeper", "etcd"])
def spec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StatemgrSpec]:
    kind = str(request.param)
    if (missing := zookeeper_missing() if kind == "zookeeper" else etcd_missing()) is not None:
        pytest.skip(missing)
    directory = tmp_path_factory.mktemp(kind)
    make_certificates(directory, kind, "")  # etcd with users takes no client with a common name
    server = (EtcdServer if kind == "etcd" else ZookeeperServer)(directory / "server", tls=directory)
    with server:
        if isinstance(server, EtcdServer):
            guard(server)
        yield StatemgrSpec(
            type=kind,
            connection=server.connection,
            root="/heron",
            credentials_file=str(private(directory / "credentials", f"heron:{PASSWORD}\n")),
            ca_file=str(directory / "ca.pem"),
            certificate_file=str(directory / "client.pem"),
        )


def guard(server: EtcdServer) -> None:
    """Let `heron` read and write below /heron/, and nobody else anything."""
    below = {key: base64.b64encode(value).decode() for key, value in (("key", b"/heron/"), ("range_end", b"/heron0"))}
    for method, body in (
        ("user/add", {"name": "root", "password": PASSWORD}),
        ("role/add", {"name": "root"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("user/add", {"name": "heron", "password": PASSWORD}),
        ("role/add", {"name": "heron"}),
        ("role/grant", {"name": "heron", "perm": {"permType": "READWRITE", **below}}),
        ("user/grant", {"user": "heron", "role": "heron"}),
        ("enable", {}),
    ):
        answer = server.call(f"auth/{method}", **body)
        assert "error" not in answer, answer


@pytest.fixture(scope="module")
def cluster(spec: StatemgrSpec) -> Iterator[LocalCluster]:
    properties = {
        "heron.class.state.manager": spec.type,
        "heron.statemgr.connection.string": spec.connection,
        "heron.statemgr.root.path": spec.root,
        "heron.statemgr.credentials.file": spec.credentials_file,
        "heron.statemgr.tls.ca.file": spec.ca_file,
        "heron.statemgr.tls.certificate.file": spec.certificate_file,
    }
    with LocalCluster(properties) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def small(cluster: LocalCluster) -> TopologyHandle:
    return cluster.submit(NUMBERS, "Small").wait_running()


def test_its_processes_read_the_secrets_from_its_own_directory(small: TopologyHandle, spec: StatemgrSpec) -> None:
    own = small.launch.statemgr
    for path in (own.credentials_file, own.ca_file, own.certificate_file):
        assert Path(path).parent == small.launch.dir / SECRETS_DIR
    with pytest.raises(StateError):
        open_statemgr(replace(spec, credentials_file="")).get(Kind.TOPOLOGIES, small.name)
    master = small.processes()["tmaster"]
    os.kill(master, signal.SIGKILL)

    def another() -> None:
        assert small.processes().get("tmaster") not in (None, master)

    eventually_sync(another, within_s=120.0)
    small.wait_running()


def test_nothing_that_others_see_has_the_password_in_it(small: TopologyHandle) -> None:
    assert PASSWORD not in (small.launch.dir / "launch.json").read_text()
    with open_statemgr(small.launch.statemgr) as state:
        for kind in Kind:
            for name in state.list(kind):
                assert PASSWORD.encode() not in (state.get(kind, name) or b"")
    for pid in small.processes().values():
        for file in ("environ", "cmdline"):
            assert PASSWORD.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()
    for log in small.launch.dir.glob("container_*/log-files/*"):
        assert PASSWORD not in log.read_text(errors="replace"), log


async def test_a_tracker_follows_it(small: TopologyHandle, spec: StatemgrSpec) -> None:
    app = create_app(TrackerConfig(statemgrs=(StateManagerConfig("farm", spec),), hosts=("tracker",)))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://tracker", timeout=120) as client,
    ):

        async def seen() -> None:
            (roles,) = (await client.get("/topologies")).json().values()
            assert [names for environs in roles.values() for names in environs.values()] == [["Small"]]

        await eventually(seen)
        with open_statemgr(spec) as state:
            assert await asyncio.to_thread(state.list, Kind.EXECUTIONSTATE) == ["Small"]


def test_a_kill_leaves_nothing_in_the_state_manager(small: TopologyHandle, spec: StatemgrSpec) -> None:
    small.kill()
    with open_statemgr(spec) as state:
        assert {kind: names for kind in Kind if (names := state.list(kind))} == {}
