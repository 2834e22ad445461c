"""etcd's v3 API as JSON over HTTP(S), at whichever of several endpoints answers.

Nothing but the standard library: the gRPC gateway is part of every etcd since 3.3 (`/v3/` since 3.4) and is on unless
switched off. aetcd, the client on PyPI that is kept, takes one endpoint and brings an event loop of its own; calls that
block a thread fit the interface of state managers better.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from heronpy.errors import ConfigError
from heronpy.statemgr._access import CERTIFICATE_KEY, Credentials, tls_refusal

log = logging.getLogger(__name__)

_IDLE_MAX = 4
_PART_BYTES = 1 << 16

# Codes of gRPC, as the gateway repeats them.
INVALID_ARGUMENT = 3
NOT_FOUND = 5
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
OUT_OF_RANGE = 11
UNAUTHENTICATED = 16
_DEFINITE = frozenset(
    {INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE}
)
_TRY_AGAIN = ("too many requests", "raft: stopped", "server stopped")


class NotSentError(Exception):
    """The request reached no server: it was not done. `refused` says why no further attempt will get any further."""

    def __init__(self, reason: str, refused: str | None = None) -> None:
        super().__init__(reason)
        self.refused = refused


class NoAnswerError(Exception):
    """The request was sent and not answered: it was done, will be, or never was."""


class RefusedError(Exception):
    """etcd has answered that it does not do it. `code` is gRPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


def encode(data: bytes | str) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def parse_endpoints(connection: str) -> list[tuple[str, int, bool]]:
    """(host, port, TLS?) of each of `[http[s]://]host:port,…`.

    Raises:
        ConfigError: it is not that.
    """
    endpoints = []
    for text in (part.strip() for part in connection.split(",")):
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        rest = "" if host is None else parts.path.strip("/") + parts.query + parts.fragment + (parts.username or "")
        if not host or not port or rest or parts.scheme not in ("http", "https"):
            raise ConfigError(f"{connection!r} is not a list of etcd endpoints: use [https://]host:port[,host:port…]")
        endpoints.append((host, port, parts.scheme == "https"))
    return endpoints


class Gateway:
    """Calls to the current endpoint, and from the first trouble with it to the next one. Thread-safe."""

    def __init__(
        self,
        connection: str,
        *,
        attempt_timeout_s: float,
        tls: Callable[[], ssl.SSLContext],
        credentials: Callable[[], Credentials | None],
    ) -> None:
        self._endpoints = parse_endpoints(connection)
        self.attempt_timeout_s = attempt_timeout_s
        self._tls = tls() if any(tls_ for _, _, tls_ in self._endpoints) else None
        self._credentials = credentials
        self._lock = threading.Lock()
        self._idle: list[tuple[int, http.client.HTTPConnection]] = []
        self._token: str | None = None
        self._closed = False
        self.current = 0
        """Which endpoint calls go to; it grows with every trouble, and the endpoints take turns."""

    @property
    def endpoints(self) -> int:
        return len(self._endpoints)

    def rotate(self, used: int) -> None:
        """Leave the endpoint that a call has used, unless another thread already has."""
        with self._lock:
            if self.current == used:
                self.current += 1
                idle, self._idle = self._idle, []
            else:
                idle = []
        for _, connection in idle:
            connection.close()

    def call(self, method: str, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """One attempt of a unary call.

        Raises:
            NotSentError, NoAnswerError, RefusedError: see there. After the first two calls go to the next endpoint.
        """
        deadline_s = time.monotonic() + min(timeout_s, self.attempt_timeout_s)
        for last in (False, True):
            token = self._authenticated(deadline_s)
            try:
                return self._post(method, body, token, deadline_s)
            except RefusedError as e:
                # Tokens end with time, with the member that gave them out, and with every change of users and roles.
                if last or token is None or not _token_ended(e):
                    raise
                with self._lock:
                    self._token = None if self._token == token else self._token
        raise AssertionError("unreachable")

    def _authenticated(self, deadline_s: float) -> str | None:
        with self._lock:
            token = self._token
        if token is not None or (credentials := self._credentials()) is None:
            return token
        body = {"name": credentials.user, "password": credentials.password}
        try:
            token = str(self._post("auth/authenticate", body, None, deadline_s)["token"])
        except RefusedError as e:
            if e.code == FAILED_PRECONDITION:
                return None  # authentication is not switched on: the password is not needed
            raise
        with self._lock:
            self._token = token
        return token

    def _post(self, method: str, body: Mapping[str, Any], token: str | None, deadline_s: float) -> dict[str, Any]:
        used, connection = self._connection(deadline_s)
        try:
            sock = connection.sock
            response = _send(connection, method, json.dumps(body).encode(), token, deadline_s)
            answer = _read_all(sock, response, deadline_s)
        except (OSError, http.client.HTTPException, ValueError) as e:
            connection.close()
            self.rotate(used)
            if refused := tls_refusal(e):  # TLS 1.3: a client's certificate is refused after the handshake
                raise NotSentError(refused, refused) from e
            plain = not isinstance(connection, http.client.HTTPSConnection)
            hint = "; if it speaks TLS, use https://" if plain and isinstance(e, ConnectionError) else ""
            raise NoAnswerError(_text(e) + hint) from e
        self._put_back(used, connection)
        return self._checked(response.status, answer, used)

    def _checked(self, status: int, answer: bytes, used: int) -> dict[str, Any]:
        try:
            values = json.loads(answer)
        except ValueError:
            values = None
        if status == 200 and isinstance(values, dict):
            return values
        if not isinstance(values, dict) or not isinstance(values.get("code"), int):
            self.rotate(used)  # not etcd's gateway, or a proxy on the way to it
            if b"CommonName of client" in answer:
                reason = f"with users, it takes no client's certificate with a common name (see {CERTIFICATE_KEY})"
                raise NotSentError(reason, reason)
            raise NoAnswerError(f"HTTP status {status}")
        code, message = values["code"], str(values.get("message") or values.get("error") or "")
        if (code in _DEFINITE or code == UNAUTHENTICATED) and not any(text in message for text in _TRY_AGAIN):
            raise RefusedError(code, message.removeprefix("etcdserver: "))
        self.rotate(used)  # no leader, a timeout among the members, …: another member may be better off
        raise NoAnswerError(message)

    def _connection(self, deadline_s: float) -> tuple[int, http.client.HTTPConnection]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            used = self.current
        return used, self._connect(used, deadline_s)

    def _connect(self, used: int, deadline_s: float) -> http.client.HTTPConnection:
        host, port, tls = self._endpoints[used % len(self._endpoints)]
        left_s = max(0.001, deadline_s - time.monotonic())
        connection: http.client.HTTPConnection
        if tls:
            connection = http.client.HTTPSConnection(host, port, timeout=left_s, context=self._tls)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=left_s)
        try:
            connection.connect()
        except OSError as e:
            connection.close()
            self.rotate(used)
            refused = tls_refusal(e)
            raise NotSentError(refused or _text(e), refused) from e
        return connection

    def _put_back(self, used: int, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            usable = connection.sock is not None and used == self.current and not self._closed
            if usable and len(self._idle) < _IDLE_MAX:
                self._idle.append((used, connection))
                return
        connection.close()

    def stream(self, method: str, messages: Sequence[Mapping[str, Any]]) -> Stream:
        """Send messages and follow the answers, on a connection of its own.

        Raises:
            NotSentError, NoAnswerError, RefusedError: see there.
        """
        deadline_s = time.monotonic() + self.attempt_timeout_s
        token = self._authenticated(deadline_s)
        used = self.current
        connection = self._connect(used, deadline_s)
        body = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        sock = connection.sock
        try:
            response = _send(connection, method, body, token, deadline_s)
            if response.status != 200:
                self._checked(response.status, _read_all(sock, response, deadline_s), used)
        except (OSError, http.client.HTTPException, ValueError) as e:
            connection.close()
            self.rotate(used)
            raise NoAnswerError(_text(e)) from e
        except BaseException:
            connection.close()
            raise
        return Stream(used, connection, sock, response)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()


class Stream:
    """Answers that come as they happen, one thread reads; any thread may interrupt it."""

    def __init__(
        self, endpoint: int, connection: http.client.HTTPConnection, sock: socket.socket, response: Any
    ) -> None:
        self.endpoint = endpoint
        self._connection, self._sock, self._response = connection, sock, response

    def follow(self, watches: int, within_s: float) -> Iterator[dict[str, Any]]:
        """The `result` of each answer, until the stream ends.

        Args:
            watches: how many were requested.
            within_s: by when all of them are to be made. Once etcd has begun to answer, what is left of the request
                may be thrown away unread: Go's HTTP server does that, and then some watches are never made.

        Raises:
            NoAnswerError: the connection was lost, etcd ended the stream with an error, or not all watches were made.
        """
        deadline_s = time.monotonic() + within_s
        missing = watches
        try:
            while True:
                # Then silence is no trouble: whether the endpoint is alive is found out by other calls.
                self._sock.settimeout(max(0.001, deadline_s - time.monotonic()) if missing > 0 else None)
                if not (line := self._response.readline()):
                    return
                answer = json.loads(line)
                if "result" not in answer:
                    raise NoAnswerError(str(answer.get("error", answer))[:200])
                missing -= bool(answer["result"].get("created"))
                yield answer["result"]
        except TimeoutError as e:
            raise NoAnswerError(f"{missing} of {watches} watches were not made within {within_s:g} s") from e
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as e:
            raise NoAnswerError(_text(e)) from e

    def interrupt(self) -> None:
        """End it; the thread that reads it notices at once."""
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown, which takes the TLS object away from under the reader.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        self.interrupt()
        with contextlib.suppress(OSError):
            self._response.close()
        self._connection.close()


def _send(
    connection: http.client.HTTPConnection, method: str, body: bytes, token: str | None, deadline_s: float
) -> http.client.HTTPResponse:
    # A stream of a member that is cut off from the others is to end, and not only to fall silent.
    headers = {"Content-Type": "application/json", "Grpc-Metadata-Hasleader": "true"}
    if token is not None:
        headers["Authorization"] = token
    connection.sock.settimeout(max(0.001, deadline_s - time.monotonic()))
    connection.request("POST", f"/v3/{method}", body, headers)
    return connection.getresponse()


def _read_all(sock: socket.socket, response: http.client.HTTPResponse, deadline_s: float) -> bytes:
    """The whole body, by the deadline also from a server that sends it drop by drop."""
    parts = []
    while part := response.read1(_PART_BYTES):
        parts.append(part)
        sock.settimeout(max(0.001, deadline_s - time.monotonic()))
    response.close()  # else the connection would not take another request
    return b"".join(parts)


def _token_ended(error: RefusedError) -> bool:
    return error.code == UNAUTHENTICATED or "revision of auth store is old" in error.message or "token" in error.message


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
