"""Addresses as text: one way in, one way out, IPv6 included."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.address import bare_host, join_address, listening_socket, split_address
from heronpy.errors import UsageError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:2181", "localhost", 2181),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("[::1]:2181", "::1", 2181),
        (" [fe80::1%eth0]:80 ", "fe80::1%eth0", 80),
        ("zk-1.example.com:65535", "zk-1.example.com", 65535),
    ],
)
def test_an_address_is_split_into_host_and_port(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)
    assert split_address(join_address(host, port)) == (host, port)


@pytest.mark.parametrize(("text", "host"), [("localhost", "localhost"), ("::1", "::1"), ("[::1]", "::1")])
def test_an_address_without_a_port_has_the_default(text: str, host: str) -> None:
    assert split_address(text, 2181) == (host, 2181)
    with pytest.raises(UsageError, match="is not an address"):
        split_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":2181",
        "host:",
        "host:port",
        "host:65536",
        "host:-1",
        "host:²",
        "a:b:1",
        "[::1:2181",
        "::1]:2181",
        "[]:1",
        "[host]:1",
        "[::1]2181",
        "a b:1",
        "host/path:1",
    ],
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        split_address(text, 1)
    assert repr(text) in str(refused.value)


@given(st.one_of(st.ip_addresses().map(str), st.from_regex(r"\A[a-z0-9.-]+\Z")), st.integers(0, 65535))
def test_what_is_joined_is_split_again(host: str, port: int) -> None:
    assert split_address(join_address(host, port)) == (host, port)


def test_only_brackets_around_a_host_are_removed() -> None:
    assert bare_host("[::1]") == bare_host("::1") == "::1"
    assert bare_host("host") == "host"


@pytest.mark.parametrize(("bind", "dialled"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")])
def test_who_listens_is_reached(bind: str, dialled: str) -> None:
    with listening_socket(bind, 0) as listening:
        socket.create_connection((dialled, listening.getsockname()[1]), timeout=60).close()
