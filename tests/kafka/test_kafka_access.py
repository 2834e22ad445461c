"""TLS, SASL and access rights: what is right works, and what is wrong is one clear line."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from heronpy.connectors import KafkaSink, KafkaTopic
from heronpy.errors import ConfigError, UnavailableError
from heronpy.testing import eventually_sync
from heronpy.testing.kafka import KafkaServer
from heronpy.testing.positions_kit import opened, rest_of
from heronpy.testing.transactions_kit import open_transactional, prepared

PASSWORD_ENV = "TEST_KAFKA_PASSWORD"
SECRETS = {"sasl.password": PASSWORD_ENV}
SCRAM = "SCRAM-SHA-256", "SCRAM-SHA-512"
Options = Mapping[str, str]


@pytest.fixture(scope="module")
def passwords(kafka: KafkaServer) -> Mapping[str, str]:
    """The password of `KafkaServer.user`, by mechanism."""
    for mechanism in SCRAM:
        kafka.add_user(kafka.user, f"pw of {mechanism}", mechanism)
    return {"PLAIN": kafka.password, **{mechanism: f"pw of {mechanism}" for mechanism in SCRAM}}


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic()


def round_trip(kafka: KafkaServer, servers: str, topic: str, options: Options, secrets: Mapping[str, str]) -> None:
    """A message goes there in a transaction, and comes back."""
    sink = KafkaSink(servers, topic, options=options, secrets=secrets)
    writer = open_transactional(sink)
    writer.commit(prepared(writer, 1, ["é"]))
    writer.close()
    kafka.settle(topic)
    source = KafkaTopic(servers, topic, group=topic, bounded=True, options=options, secrets=secrets)
    assert [record.value for record in rest_of(opened(source, f"{topic}-0"))] == ["é"]


def refusal(kind: type[Exception], servers: str, topic: str, options: Options, timeout_s: float = 60) -> str:
    secrets = SECRETS if "sasl.mechanism" in options else {}
    source = KafkaTopic(servers, topic, group=topic, timeout_s=timeout_s, options=options, secrets=secrets)
    with pytest.raises(kind) as error:
        source.stream_splits()
    text = str(error.value)
    assert f"KafkaTopic('{topic}', group='{topic}')" in text
    assert "\n" not in text
    return text


def why_away(servers: str, topic: str, options: Options, reason: str) -> str:
    """Why nothing is answered in time; in more time, if the `reason` did not come by then."""
    texts = (refusal(UnavailableError, servers, topic, options, timeout_s) for timeout_s in (1, 10, 60))
    return next((text for text in texts if reason in text), "")


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_right_credentials_write_and_read_and_wrong_ones_are_refused(
    kafka: KafkaServer,
    passwords: Mapping[str, str],
    topic: str,
    mechanism: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = kafka.sasl_options(mechanism)
    monkeypatch.setenv(PASSWORD_ENV, "wr0ng")
    text = refusal(ConfigError, kafka.sasl_servers, topic, options)
    assert "access denied" in text
    assert "Authentication failed" in text
    assert "Kafka denies access" in caplog.text
    assert "wr0ng" not in text + caplog.text
    monkeypatch.setenv(PASSWORD_ENV, passwords[mechanism])
    round_trip(kafka, kafka.sasl_servers, topic, options, SECRETS)


def test_passwords_come_from_the_environment_and_do_not_travel(
    kafka: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_ENV, raising=False)
    text = refusal(ConfigError, kafka.sasl_servers, topic, kafka.sasl_options())
    assert f"{PASSWORD_ENV} must have sasl.password" in text
    monkeypatch.setenv(PASSWORD_ENV, kafka.password)
    source = KafkaTopic(kafka.sasl_servers, topic, group=topic, options=kafka.sasl_options(), secrets=SECRETS)
    assert len(source.stream_splits()) == 1
    assert kafka.password.encode() not in pickle.dumps(source)


def test_a_certificate_writes_and_reads(kafka: KafkaServer, topic: str) -> None:
    round_trip(kafka, kafka.tls_servers, topic, kafka.tls_options, {})


def test_a_client_without_a_certificate_is_refused(kafka: KafkaServer, topic: str) -> None:
    options = {name: value for name, value in kafka.tls_options.items() if name.startswith(("security", "ssl.ca"))}
    assert "bad certificate" in why_away(kafka.tls_servers, topic, options, "bad certificate")


def test_a_broker_that_the_authority_does_not_vouch_for_is_not_trusted(
    kafka: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_ENV, kafka.password)
    options = {name: value for name, value in kafka.sasl_options().items() if name != "ssl.ca.location"}
    assert "certificate verify failed" in why_away(kafka.sasl_servers, topic, options, "certificate verify failed")


def test_a_missing_file_names_its_option(kafka: KafkaServer, topic: str, tmp_path: Path) -> None:
    options = {**kafka.tls_options, "ssl.certificate.location": str(tmp_path / "none.pem")}
    assert "ssl.certificate.location" in refusal(ConfigError, kafka.tls_servers, topic, options)


def test_a_client_without_tls_is_told_what_to_look_at(kafka: KafkaServer, topic: str) -> None:
    assert "security.protocol" in why_away(kafka.tls_servers, topic, {}, "security.protocol")


def allow(kafka: KafkaServer, user: str, kind: str, name: str, pattern: str = "LITERAL") -> None:
    """Give a user all rights on something, and wait until the broker knows them."""
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    what, how = (ResourceType[kind], name, ResourcePatternType[pattern]), (AclOperation.ALL, AclPermissionType.ALLOW)
    right = AclBinding(*what, f"User:{user}", "*", *how)
    kafka.admin().create_acls([right])[right].result(60)

    def known() -> None:  # the controller has answered; the broker follows it
        assert kafka.admin().describe_acls(AclBindingFilter(*what, f"User:{user}", "*", *how)).result(60) == [right]

    eventually_sync(known)


def test_a_user_without_rights_is_refused(
    kafka: KafkaServer, topic: str, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = f"guest of {topic}"
    kafka.add_user(guest, "guest's")
    monkeypatch.setenv(PASSWORD_ENV, "guest's")
    options = kafka.sasl_options("SCRAM-SHA-512", guest)
    text = refusal(ConfigError, kafka.sasl_servers, topic, options)
    assert "access denied" in text
    assert "Topic authorization failed" in text
    progress = make_topic(2)

    for name in (topic, progress):
        allow(kafka, guest, "TOPIC", name)
    sink = KafkaSink(kafka.sasl_servers, topic, progress_topic=progress, options=options, secrets=SECRETS)
    with pytest.raises(ConfigError, match="access denied") as error:
        open_transactional(sink)
    assert "\n" not in str(error.value)
    allow(kafka, guest, "TRANSACTIONAL_ID", "heron-", "PREFIXED")
    allow(kafka, guest, "GROUP", "heron-progress")
    writer = open_transactional(sink)
    writer.commit(prepared(writer, 1, ["é"]))
    assert "access denied" in refusal(ConfigError, kafka.sasl_servers, topic, options)  # its group
