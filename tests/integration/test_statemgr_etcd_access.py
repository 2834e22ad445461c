"""etcd with users and TLS: what is told when it refuses, and that it does what it should when it does not."""

from __future__ import annotations

import base64
import datetime
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from heronpy.errors import ConfigError, StateError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.statemgr.etcd import Gateway, NoAnswerError
from heronpy.testing import eventually_sync
from heronpy.testing.certificates import make_certificates
from heronpy.testing.etcd import EtcdServer, etcd_missing
from heronpy.testing.statemgr_kit import WITHIN_S, Seen, StatemgrKit, opened

pytestmark = pytest.mark.skipif(etcd_missing() is not None, reason=etcd_missing() or "")

PASSWORD = "swordfish"


def private(path: Path, text: str) -> str:
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


def key(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A server with users: `heron` may read and write below /heron/, `nobody` nothing."""
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        below = {"key": key("/heron/"), "range_end": key("/heron0")}
        for method, body in (
            ("user/add", {"name": "root", "password": "root"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "heron", "password": PASSWORD}),
            ("user/add", {"name": "nobody", "password": PASSWORD}),
            ("role/add", {"name": "heron"}),
            ("role/grant", {"name": "heron", "perm": {"permType": "READWRITE", **below}}),
            ("user/grant", {"user": "heron", "role": "heron"}),
            ("enable", {}),
        ):
            answer = server.call(f"auth/{method}", **body)
            assert "error" not in answer, answer
        yield server


def test_a_common_name_that_etcd_with_users_does_not_take_is_named(tmp_path: Path) -> None:
    make_certificates(tmp_path, "etcd", "heron")
    with EtcdServer(tmp_path / "etcd", tls=tmp_path) as server:
        for method, body in (
            ("user/add", {"name": "root", "password": PASSWORD}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            server.call(f"auth/{method}", **body)
        spec = over_tls(server, tmp_path)
        with pytest.raises(StateError, match="no client's certificate with a common name"):
            open_statemgr(replace(spec, credentials_file=private(tmp_path / "credentials", f"root:{PASSWORD}")))


@pytest.fixture
def spec(guarded: EtcdServer, tmp_path: Path, request: pytest.FixtureRequest) -> StatemgrSpec:
    credentials = private(tmp_path / "credentials", f"heron:{PASSWORD}\n")
    root = f"/heron/test-{abs(hash(request.node.nodeid))}"
    return StatemgrSpec(type="etcd", connection=guarded.connection, root=root, credentials_file=credentials)


@pytest.mark.long
class TestEtcdWithUsers(StatemgrKit):
    pass


def test_a_user_reads_writes_and_follows(spec: StatemgrSpec) -> None:
    with opened(spec) as sm, opened(spec) as other:
        seen = Seen()
        other.watch(Kind.PPLANS, "words", seen)
        assert seen.next() is None
        sm.create(Kind.TMASTERS, "words", b"here", ephemeral=True)
        sm.set(Kind.PPLANS, "words", b"plan")
        assert seen.next() == b"plan"
        with sm.lock("words", "update"):
            pass


def test_a_token_that_the_server_has_forgotten_is_renewed(spec: StatemgrSpec, guarded: EtcdServer) -> None:
    with opened(spec) as sm:
        sm.set(Kind.PPLANS, "words", b"1")
        guarded.kill()
        guarded.start()
        sm.set(Kind.PPLANS, "words", b"2")
        assert sm.get(Kind.PPLANS, "words") == b"2"


@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        ("heron:wrong", "the user or password is wrong"),
        ("stranger:x", "the user or password is wrong"),
        (f"nobody:{PASSWORD}", "permission denied: the user's role needs read and write below /heron/"),
        ("", "it requires a user and a password"),
    ],
)
def test_a_stranger_is_told_why_in_one_line(spec: StatemgrSpec, tmp_path: Path, credentials: str, reason: str) -> None:
    path = private(tmp_path / "other", credentials) if credentials else ""
    with pytest.raises(StateError) as refused:
        open_statemgr(replace(spec, credentials_file=path))
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_root_that_is_not_the_users_is_refused(spec: StatemgrSpec) -> None:
    with pytest.raises(StateError, match=r"permission denied.* below /other/"):
        open_statemgr(replace(spec, root="/other"))


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [("heron", 0o600, "user:password"), ("a:b\nc:d", 0o600, "user:password"), ("a:b", 0o644, "can be read by others")],
)
def test_a_file_of_credentials_that_will_not_do_is_named(
    spec: StatemgrSpec, tmp_path: Path, text: str, mode: int, reason: str
) -> None:
    path = Path(private(tmp_path / "bad", text))
    path.chmod(mode)
    with pytest.raises(ConfigError) as refused:
        open_statemgr(replace(spec, credentials_file=str(path)))
    assert str(path) in str(refused.value)
    assert reason in str(refused.value) or mode == 0o644


def test_a_password_that_nobody_asks_for_does_no_harm(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "etcd") as server:
        credentials = private(tmp_path / "credentials", "heron:x")
        spec = StatemgrSpec(type="etcd", connection=server.connection, root="/heron", credentials_file=credentials)
        with opened(spec) as sm:
            sm.set(Kind.PPLANS, "words", b"x")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, "etcd", "heron")
    return directory


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd"), tls=certificates) as server:
        yield server


def over_tls(server: EtcdServer, certificates: Path) -> StatemgrSpec:
    return StatemgrSpec(
        type="etcd",
        connection=server.connection,
        root="/heron",
        ca_file=str(certificates / "ca.pem"),
        certificate_file=str(certificates / "client.pem"),
    )


def test_with_certificates_it_reads_writes_follows_and_ends(tls: EtcdServer, certificates: Path) -> None:
    spec = over_tls(tls, certificates)
    with opened(spec) as sm, opened(spec) as other:
        seen = Seen()
        other.watch(Kind.PPLANS, "words", seen)
        assert seen.next() is None
        for n in range(20):
            sm.set(Kind.PPLANS, "words", b"%02d" % n)
        assert seen.until(b"19")
        other.watch(Kind.PPLANS, "other words", seen)  # ends the stream, and begins another
        assert seen.next() is None
        sm.create(Kind.TMASTERS, "words", b"x" * 900_000, ephemeral=True)
        assert other.get(Kind.TMASTERS, "words") == b"x" * 900_000


@pytest.mark.parametrize("trouble", ["another CA", "no certificate", "name"])
def test_a_certificate_that_will_not_do_is_one_clear_line_within_seconds(
    tls: EtcdServer, certificates: Path, tmp_path: Path, trouble: str
) -> None:
    spec = over_tls(tls, certificates)
    if trouble == "another CA":
        make_certificates(tmp_path, "etcd", "heron")
        spec, reason = replace(spec, ca_file=str(tmp_path / "ca.pem")), "heron.statemgr.tls.ca.file"
    elif trouble == "no certificate":
        spec, reason = replace(spec, certificate_file=""), "heron.statemgr.tls.certificate.file"
    else:
        spec, reason = replace(spec, connection=spec.connection.replace("127.0.0.1", "localhost")), "localhost"
    with pytest.raises(StateError) as refused:
        open_statemgr(spec, call_timeout_s=WITHIN_S)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_who_does_not_speak_tls_to_a_server_that_does_is_told_how(tls: EtcdServer) -> None:
    plain = tls.connection.removeprefix("https://")
    context = ssl.create_default_context
    gateway = Gateway(plain, attempt_timeout_s=WITHIN_S, tls=context, credentials=lambda: None)
    with pytest.raises(NoAnswerError, match="if it speaks TLS, use https://"):
        gateway.call("kv/range", {"key": key("/heron")}, WITHIN_S)


def test_a_certificate_that_has_expired_is_named(tmp_path: Path) -> None:
    make_certificates(tmp_path, "etcd", "heron", server_for=datetime.timedelta(hours=-1))
    server = EtcdServer(tmp_path / "etcd", tls=tmp_path)
    server.start(wait=False)  # no client finds out whether it serves
    try:

        def refused() -> None:
            with pytest.raises(StateError, match="certificate has expired"):
                open_statemgr(over_tls(server, tmp_path), call_timeout_s=2.0).close()

        eventually_sync(refused)
    finally:
        server.kill()


def test_files_that_are_no_certificates_are_named(tls: EtcdServer, certificates: Path, tmp_path: Path) -> None:
    spec = over_tls(tls, certificates)
    (tmp_path / "x.pem").write_text("x")
    for change in ({"ca_file": str(tmp_path / "x.pem")}, {"certificate_file": str(certificates / "ca.pem")}):
        with pytest.raises(ConfigError, match="pem is not a"):
            open_statemgr(replace(spec, **change))  # type: ignore[arg-type]


def test_endpoints_without_tls_are_refused_where_certificates_are_named(tls: EtcdServer, certificates: Path) -> None:
    spec = over_tls(tls, certificates)
    with pytest.raises(ConfigError, match="endpoints need https://"):
        open_statemgr(replace(spec, connection=f"{spec.connection},127.0.0.1:1"))
