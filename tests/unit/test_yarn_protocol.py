"""Hadoop's RPC as the YARN scheduler speaks it, against a server that takes nothing else than Hadoop's would."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from heron_scheduler.yarn import Credentials, DigestClient, RemoteError, RpcClient, parse_challenge
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.errors import ConfigError, StateError, UnavailableError
from heronpy.proto import hadoop_pb2

PROTOCOL = "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB"
TOKEN = hadoop_pb2.Token(identifier=b"\x01who", password=b"\xffsecret", kind="k", service="s")
CHALLENGE = b'realm="default",nonce="abc+/=",charset=utf-8,algorithm=md5-sess,qop="auth"'


def test_the_example_of_the_rfc_is_answered_as_it_says() -> None:
    # RFC 2831, section 4, but for its user and password, which Hadoop has in base64.
    user, password = base64.b64decode("chris+=="), base64.b64decode("secret==")
    client = DigestClient(user, password, "imap/elwood.innosoft.com", cnonce="OA6MHXh6VqTrRk")
    answer = parse_challenge(
        client.respond(
            b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
        )
    )
    name, secret = base64.b64encode(user).decode(), base64.b64encode(password).decode()
    assert answer["username"] == name
    a1 = hashlib.md5(
        hashlib.md5(f"{name}:elwood.innosoft.com:{secret}".encode()).digest() + b":OA6MG9tEQGm2hh:OA6MHXh6VqTrRk"
    ).hexdigest()
    a2 = hashlib.md5(b"AUTHENTICATE:imap/elwood.innosoft.com").hexdigest()
    expected = hashlib.md5(f"{a1}:OA6MG9tEQGm2hh:00000001:OA6MHXh6VqTrRk:auth:{a2}".encode()).hexdigest()
    assert answer["response"] == expected
    assert answer["nc"] == "00000001"
    with pytest.raises(UnavailableError, match="does not know the token"):
        client.verify(b"rspauth=" + b"0" * 32)


def test_a_cluster_that_wants_encryption_of_its_rpc_is_named() -> None:
    with pytest.raises(ConfigError, match=r"hadoop.rpc.protection with auth-conf alone"):
        DigestClient(b"u", b"p", "/default").respond(CHALLENGE.replace(b'"auth"', b'"auth-conf"'))


@pytest.mark.parametrize(
    "challenge", [b"", b"\xff\x00", b'realm="x', b"=", b'realm="default",qop="auth"', b'nonce="\xff"']
)
def test_what_is_no_challenge_is_refused(challenge: bytes) -> None:
    with pytest.raises(UnavailableError):
        DigestClient(b"u", b"p", "/default").respond(challenge)


def test_credentials_are_written_as_hadoop_writes_them() -> None:
    one = Credentials(secrets={"heron.bootstrap": b"x" * 300})
    assert one.encode() == b"HDTS\x00" + b"\x00" + b"\x01" + b"\x0fheron.bootstrap" + b"\x8e\x01\x2c" + b"x" * 300


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=300)), max_size=3),
    st.dictionaries(st.text(max_size=9), st.binary(max_size=300), max_size=3),
)
def test_credentials_are_read_back(tokens: list[tuple[bytes, bytes]], secrets: dict[str, bytes]) -> None:
    made = tuple(hadoop_pb2.Token(identifier=i, password=p, kind="k", service="h:1") for i, p in tokens)
    assert Credentials.decode(Credentials(made, secrets).encode()) == Credentials(made, secrets)


@settings(max_examples=50)
@given(st.binary(max_size=30))
def test_damaged_credentials_are_named(data: bytes) -> None:
    for damaged in (data, b"HDTS\x00" + data):
        try:
            Credentials.decode(damaged)
        except StateError as e:
            assert "file of credentials" in str(e)  # noqa: PT017  # some of them are whole


class Server:
    """Takes a connection, checks all that it is sent, and answers one call, or refuses it."""

    def __init__(self, *, refuses: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._refuses = refuses
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def stop(self) -> None:
        self._thread.join(30)
        self._listener.close()
        if self.error is not None:
            raise self.error

    def _serve(self) -> None:
        try:
            connection, _ = self._listener.accept()
            with connection:
                self._talk(connection)
        except BaseException as e:
            self.error = e

    def _talk(self, connection: socket.socket) -> None:
        file = connection.makefile("rwb")
        assert file.read(7) == b"hrpc\x09\x00\xdf"

        def receive(call: int, *kinds: type) -> list[object]:
            (size,) = struct.unpack(">I", file.read(4))
            frame, found, at = file.read(size), [], 0
            for kind in (hadoop_pb2.RpcRequestHeader, *kinds):
                length, shift = 0, 0
                while True:
                    length |= (frame[at] & 127) << shift
                    at, shift = at + 1, shift + 7
                    if frame[at - 1] < 128:
                        break
                found.append(kind.FromString(frame[at : at + length]))
                at += length
            assert at == len(frame)
            header = found.pop(0)
            assert (header.call_id, header.rpc_kind, header.rpc_op) == (call, 2, 0)
            assert len(header.client_id) == (0 if call == -33 else 16)
            return found

        def send(header: hadoop_pb2.RpcResponseHeader, *messages: object) -> None:
            parts = [one.SerializeToString() for one in (header, *messages)]
            assert all(len(part) < 128 for part in parts)
            body = b"".join(bytes([len(part)]) + part for part in parts)
            file.write(struct.pack(">I", len(body)) + body)
            file.flush()

        sasl = hadoop_pb2.RpcResponseHeader(call_id=2**32 - 33, status=0)
        (hello,) = receive(-33, hadoop_pb2.RpcSasl)
        assert hello.state == 1
        auth = hadoop_pb2.RpcSasl.Auth(
            method="TOKEN", mechanism="DIGEST-MD5", protocol="", server_id="default", challenge=CHALLENGE
        )
        send(sasl, hadoop_pb2.RpcSasl(state=1, auths=[auth]))
        (login,) = receive(-33, hadoop_pb2.RpcSasl)
        assert (login.state, login.auths[0].HasField("challenge")) == (2, False)
        told = parse_challenge(login.token)
        expected = DigestClient(TOKEN.identifier, TOKEN.password, "/default", cnonce=told["cnonce"])
        assert login.token == expected.respond(CHALLENGE)
        send(sasl, hadoop_pb2.RpcSasl(state=0, token=expected.proof))
        (context,) = receive(-3, hadoop_pb2.ConnectionContext)
        assert context.protocol == PROTOCOL
        request, message = receive(1, hadoop_pb2.RequestHeader, hadoop_pb2.AllocateRequest)
        assert (request.method_name, request.protocol_name, request.protocol_version) == ("allocate", PROTOCOL, 1)
        assert message.response_id == 7
        if self._refuses:
            name = "org.apache.hadoop.yarn.exceptions.ApplicationMasterNotRegisteredException"
            send(hadoop_pb2.RpcResponseHeader(call_id=1, status=1, exception_class_name=name, error_msg="not\nyou"))
        else:
            send(hadoop_pb2.RpcResponseHeader(call_id=1, status=0), hadoop_pb2.AllocateResponse(response_id=8))


@pytest.fixture(params=[False, True], ids=["answers", "refuses"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Server, bool]]:
    made = Server(refuses=request.param)
    yield made, request.param
    made.stop()


def test_a_login_and_a_call_are_what_hadoop_expects(server: tuple[Server, bool]) -> None:
    made, refuses = server
    with RpcClient("127.0.0.1", made.port, PROTOCOL, TOKEN) as client:
        request = hadoop_pb2.AllocateRequest(response_id=7)
        if not refuses:
            assert client.call("allocate", request, hadoop_pb2.AllocateResponse).response_id == 8
            return
        with pytest.raises(RemoteError, match=r"^ApplicationMasterNotRegisteredException: not$") as refusal:
            client.call("allocate", request, hadoop_pb2.AllocateResponse)
        assert refusal.value.kind == "ApplicationMasterNotRegisteredException"


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">I", 9) + b"\x80" * 9, struct.pack(">I", 2) + b"\x05\x00"],
)
def test_a_server_that_speaks_otherwise_is_named(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                connection.sendall(said)
                # To close with something unread is a reset, which overtakes the answer; the client may be first.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(UnavailableError, match="does not speak Hadoop's RPC"):
            RpcClient("127.0.0.1", port, PROTOCOL, TOKEN)
        thread.join()


def test_a_server_that_sends_a_byte_now_and_then_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(struct.pack(">I", 1 << 20))
                while not done.wait(0.05):
                    connection.sendall(b"\x00")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(UnavailableError, match="does not answer: timed out"):
                RpcClient("127.0.0.1", listener.getsockname()[1], PROTOCOL, TOKEN, timeout_s=0.5)
        finally:
            done.set()
            thread.join()
