"""ZooKeeper with users and TLS: strangers are kept out, and every refusal is one clear line."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from heronpy.errors import ConfigError, StateError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually_sync
from heronpy.testing.certificates import make_certificates
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing
from heronpy.testing.statemgr_kit import WITHIN_S, Seen, StatemgrKit, opened

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=zookeeper_missing() or "")


def private(path: Path, text: str) -> str:
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def open_spec(shared: ZookeeperServer, request: pytest.FixtureRequest) -> StatemgrSpec:
    return StatemgrSpec(type="zookeeper", connection=shared.connection, root=f"/test-{abs(hash(request.node.nodeid))}")


@pytest.fixture
def spec(open_spec: StatemgrSpec, tmp_path: Path) -> StatemgrSpec:
    return replace(open_spec, credentials_file=private(tmp_path / "credentials", "heron:swordfish\n"))


@pytest.mark.long
class TestZookeeperWithUsers(StatemgrKit):
    pass


@contextlib.contextmanager
def stranger(server: ZookeeperServer) -> Iterator[KazooClient]:
    """A client without credentials."""
    client = KazooClient(hosts=server.connection)
    client.start(WITHIN_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def nodes(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for child in client.get_children(path):
        yield from nodes(client, f"{path}/{child}")


def test_a_stranger_can_do_nothing_with_any_node(spec: StatemgrSpec, shared: ZookeeperServer) -> None:
    with opened(spec) as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"set")
        sm.create(Kind.PPLANS, "words", b"created")
        sm.create(Kind.TMASTERS, "words", b"ephemeral", ephemeral=True)
        assert sm.set_if(Kind.EPOCHS, "words", b"1", expected=None)
        assert sm.set_if(Kind.PACKINGPLANS, "words", b"fenced", expected=b"1", of=Kind.EPOCHS)
        with sm.lock("words", "update"), stranger(shared) as client:
            owner = KazooClient(hosts=shared.connection, auth_data=[("digest", "heron:swordfish")])
            owner.start(WITHIN_S)
            try:
                paths = list(nodes(owner, spec.root))
            finally:
                owner.stop()
                owner.close()
            assert len(paths) == 1 + len(Kind) + 6
            for path in paths:
                for act in (
                    lambda path=path: client.get(path),
                    lambda path=path: client.get_children(path),
                    lambda path=path: client.set(path, b"x"),
                    lambda path=path: client.create(f"{path}/x"),
                    lambda path=path: client.set_acls(path, OPEN_ACL_UNSAFE),
                ):
                    with pytest.raises(NoAuthError):
                        act()
                if path != spec.root:
                    with pytest.raises(NoAuthError):
                        client.delete(path)


@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        ("heron:wrong", "another user than 'heron', or its password is wrong"),
        ("stranger:swordfish", "another user than 'stranger', or its password is wrong"),
        ("", "its nodes belong to a user, name one by heron.statemgr.credentials.file"),
    ],
)
def test_whoever_is_refused_is_told_why_in_one_line(
    spec: StatemgrSpec, tmp_path: Path, credentials: str, reason: str
) -> None:
    with opened(spec):
        pass
    path = private(tmp_path / "other", credentials) if credentials else ""
    with pytest.raises(StateError) as refused:
        open_statemgr(replace(spec, credentials_file=path))
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "swordfish" not in str(refused.value).replace("stranger:swordfish", "")


def test_a_fenced_write_without_permission_is_refused_and_not_tried_for_ever(
    spec: StatemgrSpec, open_spec: StatemgrSpec
) -> None:
    with opened(open_spec) as everybody, opened(spec) as owner:
        owner.create(Kind.PPLANS, "words", b"plan")
        everybody.set(Kind.EPOCHS, "words", b"1")
        with pytest.raises(StateError, match="no permission"):
            everybody.set_if(Kind.PPLANS, "words", b"x", expected=b"1", of=Kind.EPOCHS)


def test_a_root_that_was_open_goes_on_being_used_and_says_so(
    spec: StatemgrSpec, open_spec: StatemgrSpec, caplog: pytest.LogCaptureFixture
) -> None:
    with open_statemgr(open_spec) as earlier:
        earlier.set(Kind.TOPOLOGIES, "words", b"before")
        with opened(spec) as sm:
            assert "stays open to all" in caplog.text
            assert sm.get(Kind.TOPOLOGIES, "words") == b"before"
            sm.set(Kind.TOPOLOGIES, "words", b"after")
            sm.set(Kind.PPLANS, "words", b"mine")
        assert earlier.get(Kind.TOPOLOGIES, "words") == b"after"
        with pytest.raises(StateError, match="no permission"):
            earlier.get(Kind.PPLANS, "words")


def test_a_server_that_demands_a_user_says_so(tmp_path: Path) -> None:
    demand = ["enforce.auth.enabled=true", "enforce.auth.schemes=digest"]
    with ZookeeperServer(tmp_path / "zookeeper", settings=demand) as server:
        spec = StatemgrSpec(type="zookeeper", connection=server.connection, root="/heron")
        with pytest.raises(StateError) as refused:
            open_statemgr(spec)
        assert "heron.statemgr.credentials.file" in str(refused.value)
        credentials = private(tmp_path / "credentials", "heron:swordfish")
        with open_statemgr(replace(spec, credentials_file=credentials)) as sm:
            sm.set(Kind.PPLANS, "words", b"x")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, "zookeeper", "heron")
    return directory


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[ZookeeperServer]:
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper"), tls=certificates) as server:
        yield server


def over_tls(server: ZookeeperServer, certificates: Path) -> StatemgrSpec:
    return StatemgrSpec(
        type="zookeeper",
        connection=server.connection,
        root="/heron",
        ca_file=str(certificates / "ca.pem"),
        certificate_file=str(certificates / "client.pem"),
    )


def test_with_certificates_it_reads_writes_and_follows(tls: ZookeeperServer, certificates: Path) -> None:
    spec = over_tls(tls, certificates)
    with (
        opened(spec) as sm,
        opened(spec) as other,
    ):
        seen = [Seen() for _ in range(5)]
        for n, one in enumerate(seen):
            other.watch(Kind.PPLANS, f"t{n}", one)
            assert one.next() is None
        for round_ in range(20):
            for n in range(len(seen)):
                sm.set(Kind.PPLANS, f"t{n}", b"%02d" % round_)
        for one in seen:
            assert one.until(b"19")
        sm.create(Kind.TMASTERS, "words", b"x" * 900_000, ephemeral=True)
        assert other.get(Kind.TMASTERS, "words") == b"x" * 900_000


def test_what_is_decrypted_already_does_not_wait_for_the_next_packet(tls: ZookeeperServer, certificates: Path) -> None:
    """Two answers in one TLS record: select() sees nothing of the second, which kazoo would read at its next ping."""
    ours, theirs = socket.socketpair()
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    accepting.load_cert_chain(certificates / "server.pem")
    connecting = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with (
        open_statemgr(over_tls(tls, certificates)) as sm,
        ThreadPoolExecutor(1) as pool,
        contextlib.closing(ours),
        contextlib.closing(theirs),
    ):
        accepted = pool.submit(accepting.wrap_socket, theirs, server_side=True)
        with connecting.wrap_socket(ours, server_hostname="127.0.0.1") as client, accepted.result() as server:
            server.sendall(b"onetwo")
            assert client.recv(3) == b"one"
            select = sm._client.handler.select  # type: ignore[attr-defined]
            assert select([client], [], [], 0.0)[0] == [client]
            assert client.recv(3) == b"two"
            assert select([client], [], [], 0.0)[0] == []


@pytest.mark.parametrize("trouble", ["another CA", "no certificate", "name"])
def test_a_certificate_that_will_not_do_is_one_clear_line_within_seconds(
    tls: ZookeeperServer, certificates: Path, tmp_path: Path, trouble: str
) -> None:
    spec = over_tls(tls, certificates)
    if trouble == "another CA":
        make_certificates(tmp_path, "zookeeper", "heron")
        spec, reason = replace(spec, ca_file=str(tmp_path / "ca.pem")), "heron.statemgr.tls.ca.file"
    elif trouble == "no certificate":
        spec, reason = replace(spec, certificate_file=""), "heron.statemgr.tls.certificate.file"
    else:
        spec, reason = replace(spec, connection=spec.connection.replace("127.0.0.1", "localhost")), "localhost"
    with pytest.raises(StateError) as refused:
        open_statemgr(spec)
    assert reason in str(refused.value)
    assert "does not answer" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_certificate_that_has_expired_is_named(tmp_path: Path) -> None:
    make_certificates(tmp_path, "zookeeper", "heron", server_for=datetime.timedelta(hours=-1))
    server = ZookeeperServer(tmp_path / "zookeeper", tls=tmp_path)
    server.start(wait=False)  # no client finds out whether it serves
    try:

        def refused() -> None:
            with pytest.raises(StateError, match="certificate has expired"):
                open_statemgr(over_tls(server, tmp_path), call_timeout_s=2.0).close()

        eventually_sync(refused)
    finally:
        server.kill()


def test_files_that_are_no_certificates_are_named(tls: ZookeeperServer, certificates: Path, tmp_path: Path) -> None:
    spec = over_tls(tls, certificates)
    (tmp_path / "x.pem").write_text("x")
    for change in ({"ca_file": str(tmp_path / "x.pem")}, {"certificate_file": str(certificates / "ca.pem")}):
        with pytest.raises(ConfigError, match="pem is not a"):
            open_statemgr(replace(spec, **change))  # type: ignore[arg-type]
