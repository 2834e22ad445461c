"""What is hidden of a configuration, by its name and by what it looks like."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.redaction import HIDDEN, redacted
from heronpy.redaction import shown_config as config

SHOWN = "shown to everybody"


@pytest.mark.parametrize(
    "key",
    [
        "app.db.password",
        "db_passwd",
        "API_KEY",
        "aws.secret.access.key",
        "oauth.token",
        "auth.header",
        "my-private-key",
        "sentry.dsn",
        "session_key",
        "connection.string",
    ],
)
def test_a_key_that_speaks_of_a_secret_hides_its_value(key: str) -> None:
    assert config({key: SHOWN, "nested": {key: SHOWN}, "other": SHOWN}) == {
        key: HIDDEN,
        "nested": {key: HIDDEN},
        "other": SHOWN,
    }


@pytest.mark.parametrize(
    "value",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "0123456789abcdef0123456789abcdef",
        "Authorization: Bearer abcdefgh1",
        "host=db password=hunter2",
        "--user me --token hunter2",
        "Server=db;Pwd=hunter2",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    ],
)
def test_a_value_that_looks_like_a_secret_is_hidden_whatever_its_name(value: str) -> None:
    assert config({"app.plain": value, "list": [value], "map": {"a": value}}) == {
        "app.plain": HIDDEN,
        "list": [HIDDEN],
        "map": {"a": HIDDEN},
    }
    assert list(config({value: 1})) == [HIDDEN]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://me:hunter2@db:5432/x", f"postgres://me:{HIDDEN}@db:5432/x"),
        ("redis://:p@ss@db", f"redis://:{HIDDEN}@db"),
        ("a http://b:c@d and http://e", f"a http://b:{HIDDEN}@d and http://e"),
        ("https://example.com:80/a@b", "https://example.com:80/a@b"),
    ],
)
def test_of_a_url_only_the_password_is_hidden(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    "value",
    [
        "hello",
        "org.apache.heron.packing.roundrobin.ResourceCompliantRRPacking",
        "MyVeryLongComponentName2SpoutFactory",
        "/home/User1/Projects/HeronTopologies2/input.txt",
        "container_1_word_1, container_2_word_2",
        "WordCount-5f0c1a7e-1d2c-4b1a-9a3e-0123456789ab",
        "2026-11-21T20:20:20.123456+00:00",
        "ATLEAST_ONCE",
        "word:1.5,count:2.5",
    ],
)
def test_what_is_no_secret_is_shown(value: str) -> None:
    assert redacted(value) == value


@given(st.binary(min_size=30, max_size=60))
def test_what_is_hidden_never_fails(data: bytes) -> None:
    assert isinstance(redacted(base64.b64encode(data).decode()), str)
    assert isinstance(redacted(data.decode("latin-1")), str)


@pytest.mark.parametrize("part", ["a", "a:", "://", "a://b:", "eyJ-", "secret", "bearer ", "-----BEGIN ", "%41", "@"])
def test_a_long_value_costs_no_more_than_its_length(part: str) -> None:
    text = part * (10_000 // len(part))
    began_s = time.process_time()
    redacted(text)
    assert time.process_time() - began_s < 0.5
    assert redacted(text * 2) == f"<{len(text) * 2} characters>"
