"""The authority of a topology: what its certificates say, who can read them, and how they are renewed."""

from __future__ import annotations

import datetime
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from heronpy.config import EngineConfig
from heronpy.errors import ConfigError, NotFoundError, UnavailableError, UntrustedError
from heronpy.security import (
    Security,
    authority,
    container_identity,
    dns_name_of,
    identity_of,
    read_secret,
    uri_of,
    write_secret,
)

TOPOLOGY_ID = "words-1"


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    authority.create(tmp_path / "tls", TOPOLOGY_ID, range(3), days=90)
    return tmp_path / "tls"


def security(tls: Path, process: str) -> Security:
    return Security(process=process, topology_id=TOPOLOGY_ID, token="secret", tls=tls)


@pytest.mark.parametrize(
    ("process", "identity"),
    [
        ("tmaster", "container-0"),
        ("stmgr-3", "container-3"),
        ("metricsmgr-0", "container-0"),
        ("executor-12", "container-12"),
        ("container_3_word_count_7", "container-3"),
        ("scheduler", "scheduler"),
        ("heron", "cli"),
        ("tracker", "tracker"),
        ("", ""),
        ("stmgr-", ""),
        ("stmgr-3 ", ""),
        ("stmgr-\N{ARABIC-INDIC DIGIT THREE}", ""),
        ("container-3", ""),
        ("cli", ""),
    ],
)
def test_the_id_of_a_process_says_which_certificate_it_must_have(process: str, identity: str) -> None:
    assert identity_of(process) == identity


def test_each_identity_has_a_certificate_of_its_own_that_names_it(tls: Path) -> None:
    found = {c.name: c for c in authority.inspect(tls)}
    assert list(found) == ["ca", "container-0", "container-1", "container-2", "cli", "tracker", "scheduler"]
    for name in list(found)[1:]:
        assert found[name].uri == uri_of(TOPOLOGY_ID, name)
        assert (dns_name_of(TOPOLOGY_ID, name) in found[name].dns_names) == (name not in ("cli", "tracker"))
    assert found["container-2"].uri == "heron://words-1/container/2"
    assert len({c.fingerprint for c in found.values()}) == len(found)


def test_keys_are_p256_and_each_file_can_be_read_by_its_owner_alone(tls: Path) -> None:
    for path in tls.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE(tls.stat().st_mode) == 0o700
    certificate = x509.load_pem_x509_certificate(read_secret(tls / "ca.pem"))
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


def test_the_key_of_the_authority_is_in_no_file_that_a_container_needs(tls: Path) -> None:
    key = read_secret(tls / "authority" / "ca-key.pem")
    assert b"PRIVATE KEY" in key
    for path in tls.glob("*.pem"):
        assert key.splitlines()[1] not in read_secret(path)
    assert b"PRIVATE KEY" not in read_secret(tls / "ca.pem")


def test_certificates_are_made_once_and_a_new_container_gets_one(tls: Path) -> None:
    before = {c.name: c.fingerprint for c in authority.inspect(tls)}
    authority.create(tls, TOPOLOGY_ID, range(4), days=90)
    after = {c.name: c.fingerprint for c in authority.inspect(tls)}
    assert after.keys() - before.keys() == {container_identity(3)}
    assert {name: after[name] for name in before} == before


def test_renewing_replaces_every_certificate_but_the_authority(tls: Path) -> None:
    before = {c.name: c for c in authority.inspect(tls)}
    assert sorted(authority.renew(tls, TOPOLOGY_ID, days=90)) == sorted(before.keys() - {"ca"})
    after = {c.name: c for c in authority.inspect(tls)}
    assert [n for n in before if before[n].fingerprint == after[n].fingerprint] == ["ca"]
    assert {n: c.uri for n, c in after.items()} == {n: c.uri for n, c in before.items()}


def test_a_certificate_is_due_when_a_third_of_its_time_is_left(tls: Path) -> None:
    one = next(c for c in authority.inspect(tls) if c.name == "cli")
    assert not one.due(one.not_after - datetime.timedelta(days=31))
    assert one.due(one.not_after - datetime.timedelta(days=29))
    assert authority.renew(tls, TOPOLOGY_ID, days=90, only_due=True) == []
    authority.create(tls, TOPOLOGY_ID, [7], days=1)  # valid since an hour ago: 1/25 of its time is over
    assert authority.renew(tls, TOPOLOGY_ID, days=90, only_due=True) == []


def test_where_the_key_of_the_authority_is_not_nothing_can_be_signed(tls: Path) -> None:
    (tls / "authority" / "ca-key.pem").unlink()
    with pytest.raises(NotFoundError, match=r"ca-key\.pem"):
        authority.renew(tls, TOPOLOGY_ID, days=90)


def test_the_scraper_of_a_user_is_made_once_and_its_key_stays_where_it_is(tmp_path: Path) -> None:
    first = authority.scraper_certificate(tmp_path / "home")
    assert authority.scraper_certificate(tmp_path / "home") == first
    assert b"PRIVATE KEY" not in first
    assert b"PRIVATE KEY" in read_secret(tmp_path / "home" / "scraper.pem")


def test_a_secret_that_others_can_read_or_that_is_a_link_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path, b"value")
    assert read_secret(path) == b"value"
    path.chmod(0o644)
    with pytest.raises(UntrustedError):
        read_secret(path)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(UntrustedError):
        read_secret(tmp_path / "link")
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(UntrustedError):
        read_secret(tmp_path / "fifo")


def test_a_secret_that_exists_is_kept_if_it_may_not_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path, b"first")
    write_secret(path, b"second", replace=False)
    assert path.read_bytes() == b"first"
    write_secret(path, b"third")
    assert path.read_bytes() == b"third"
    assert [p.name for p in tmp_path.iterdir()] == ["secret"]


def test_a_topology_without_certificates_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"no certificate for stmgr-1 .*: kill it and submit it again"):
        security(tmp_path / "tls", "stmgr-1").channel_credentials()


def test_the_token_is_not_in_what_is_printed_of_a_process(tls: Path) -> None:
    assert "secret" not in repr(security(tls, "stmgr-1"))


def test_tls_is_on_unless_the_configuration_says_otherwise() -> None:
    assert EngineConfig().security.tls
    assert not EngineConfig.from_keys({"heron.security.tls": "false"}).security.tls
    assert EngineConfig.from_keys({"heron.security.tls": False}).to_keys() == {"heron.security.tls": False}
    with pytest.raises(ConfigError, match=r"heron\.security\.tls must be true or false, not 'off'"):
        EngineConfig.from_keys({"heron.security.tls": "off"})
    with pytest.raises(ConfigError, match="1 to 3650"):
        EngineConfig.from_keys({"heron.security.certificate.days": 0})
