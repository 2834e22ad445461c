"""A topology on hosts that get its packages from a real S3 server on a host of its own, and share none with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_scene import QUICK, WITHIN_S, Scene, scene_on

from heronpy.checkpoints import open_storage
from heronpy.submit import kill
from heronpy.testing import eventually_sync
from heronpy.testing.hosts import Hosts, hosts_missing
from heronpy.testing.servers import S3Server, s3_missing, zookeeper_missing

MISSING = hosts_missing() or zookeeper_missing() or s3_missing()

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts("one", "two", "three", "store") as hosts:
        yield hosts


@pytest.fixture
def store(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with S3Server(hosts["store"].directory / "s3", place=hosts["store"]) as server:
        yield server


def stored(url: str) -> list[str]:
    with open_storage(url) as storage:
        return sorted(storage.names(""))


@pytest.mark.timeout(1800)
def test_packages_come_from_s3_wherever_a_container_starts_and_go_with_the_topology(
    hosts: Hosts, store: S3Server, tmp_path: Path
) -> None:
    url = store.url("packages")
    with scene_on(hosts, tmp_path, config={**QUICK, "heron.uploader.url": url}) as scene:
        reference = scene.launch.packages["package"]
        assert reference["url"].startswith("s3://packages/")
        assert any(name.startswith(reference["sha256"]) for name in stored(url))
        assert not (hosts.shared / "packages").exists()
        count_more(scene)
        lost = scene.cluster.host_of(scene.launch.topology_id, 1)
        assert lost is not None
        hosts["store"].cut()
        lost.vanish()
        scene.cluster.declare_lost(lost)
        eventually_sync(lambda: tried_in_vain(hosts), within_s=WITHIN_S)
        hosts["store"].heal()
        scene.wait_running()
        count_more(scene)
        scene.words.verify()
        kill(scene.launch)
    assert stored(url) == []


def count_more(scene: Scene) -> None:
    scene.words.raise_goal(100)
    scene.words.wait_settled(within_s=WITHIN_S)


def tried_in_vain(hosts: Hosts) -> None:
    """A container that was started on another host has said that it cannot get its package now."""
    said = "".join(
        path.read_text() for host in hosts if host.lives for path in host.directory.glob("container-*/output.log")
    )
    assert "will be retried" in said
    assert hosts["store"].address in said
