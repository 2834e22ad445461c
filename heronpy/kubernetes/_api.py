"""Requests to the API server: deadlines, retries, and errors of one line."""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from heronpy.errors import UnavailableError
from heronpy.kubernetes._access import Access
from heronpy.kubernetes._watching import Stream

BODY_BYTES_MAX = 64 * 1024 * 1024
_ATTEMPT_S = 10.0
"""How long one attempt waits for the server, if the call has that much time."""
_CONNECT_S = 5.0
_RETRY_S = 0.1
_RETRY_MAX_S = 2.0
_IDLE_MAX = 4
"""Connections that are kept for the next request."""
_MESSAGE_CHARACTERS_MAX = 500
# The server is busy, is starting or stopping, or did not wait for etcd's answer. 500 only with that reason.
_RETRIED = frozenset({429, 502, 503, 504})


class KubernetesError(UnavailableError):
    """The API server refused a request, or does not answer (status 0)."""

    def __init__(self, message: str, status: int = 0, reason: str = "", repeated: bool = False) -> None:
        super().__init__(message, status, reason, repeated)
        self.status = status
        self.reason = reason
        """The API's word for it: `NotFound`, `AlreadyExists`, `Conflict`, `Forbidden`, `Expired`, …"""
        self.repeated = repeated
        """An earlier attempt of this call got no answer: it may have been carried out."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer."""

    body: Any
    """The object, decoded."""
    server_s: float
    """The API server's clock when it answered, cut to the second; 0 if it did not say."""
    repeated: bool = False
    """An earlier attempt of this call got no answer: it may have been carried out."""


class Api:
    """A client of one API server. Thread-safe. Belongs to the process that made it."""

    def __init__(self, access: Access) -> None:
        self.access = access
        parts = urllib.parse.urlsplit(access.server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._closed = False

    def get(self, path: str, **options: Any) -> Answer:
        return self.call("GET", path, **options)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = 10.0,
    ) -> Answer:
        """Send a request until it is answered or the time is up.

        Attempts without an answer are repeated, whatever the method: the caller knows from `repeated` that the first
        may have been carried out.

        Raises:
            KubernetesError: refused, or not answered in time.
            ConfigError: there are no credentials.
        """
        deadline_s, pause_s, repeated = time.monotonic() + timeout_s, _RETRY_S, False
        target = self._target(path, query)
        data = None if body is None else json.dumps(body).encode()
        while True:
            left_s = max(0.05, deadline_s - time.monotonic())
            try:
                status, headers, answer = self._attempt(method, target, data, content, accept, min(left_s, _ATTEMPT_S))
            except (OSError, http.client.HTTPException, ssl.SSLError, ValueError) as e:
                # A server that proves to be another one, or that refuses our certificate, does so every time.
                if isinstance(e, ssl.SSLCertVerificationError) or time.monotonic() + pause_s >= deadline_s:
                    raise KubernetesError(self._unreachable(e, timeout_s), repeated=repeated) from e
                repeated = True
            else:
                busy = status in _RETRIED or (status == 500 and b"etcdserver" in answer)
                if not busy or time.monotonic() + pause_s >= deadline_s:
                    return self._answer(f"{method} {path}", status, headers, answer, repeated)
                repeated = repeated or status != 429
                pause_s = max(pause_s, min(_seconds(headers.get("Retry-After")), _RETRY_MAX_S))
            time.sleep(min(pause_s * (0.5 + random.random()), max(0.0, deadline_s - time.monotonic())))
            pause_s = min(pause_s * 2, _RETRY_MAX_S)

    def watch(self, path: str, query: Mapping[str, str], *, timeout_s: float = 10.0) -> Stream:
        """Follow a collection from a resourceVersion on. See `Stream`.

        Raises:
            KubernetesError: refused (status 410: relist), or not answered in time.
        """
        target = self._target(path, {**query, "watch": "1"})
        connection = self._connect(timeout_s)
        try:
            connection.request("GET", target, headers=self._headers("application/json"))
            response = connection.getresponse()
            if response.status != 200:
                self._answer(f"watch {path}", response.status, response.headers, response.read(BODY_BYTES_MAX), False)
            return Stream(connection, response)
        except (OSError, http.client.HTTPException, ValueError) as e:
            connection.close()
            raise KubernetesError(self._unreachable(e, timeout_s)) from e
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the idle connections; those in use are closed after their answer."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _target(self, path: str, query: Mapping[str, str] | None) -> str:
        return self._prefix + path + ("?" + urllib.parse.urlencode(query) if query else "")

    def _headers(self, accept: str) -> dict[str, str]:
        headers = {"Accept": accept, "User-Agent": "heronpy"}
        if token := self.access.token():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=min(timeout_s, _CONNECT_S))
        connection.connect()
        raw: socket.socket = connection.sock
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A server that is gone without a word is noticed after 25 s, also by who only listens.
        for option, value in (
            (socket.TCP_KEEPIDLE, 10),
            (socket.TCP_KEEPINTVL, 5),
            (socket.TCP_KEEPCNT, 3),
        ):
            raw.setsockopt(socket.IPPROTO_TCP, option, value)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            if self.access.tls is not None:
                name = self.access.tls_name or self._host
                connection.sock = self.access.tls.wrap_socket(raw, server_hostname=name)
            connection.sock.settimeout(timeout_s)
        except BaseException:
            raw.close()
            raise
        return connection

    def _attempt(
        self, method: str, target: str, data: bytes | None, content: str, accept: str, timeout_s: float
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        headers = self._headers(accept)
        if data is not None:
            headers["Content-Type"] = content
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        reused = connection is not None
        if connection is None:
            connection = self._connect(timeout_s)
        try:
            connection.sock.settimeout(timeout_s)
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            body = response.read(BODY_BYTES_MAX + 1)
        except BaseException as e:
            connection.close()
            # The server closes idle connections; one that it closed before the request was read did nothing.
            if reused and isinstance(e, (http.client.RemoteDisconnected, BrokenPipeError)) and method == "GET":
                return self._attempt(method, target, data, content, accept, timeout_s)
            raise
        if len(body) > BODY_BYTES_MAX:
            connection.close()
            raise ValueError(f"the answer is larger than {BODY_BYTES_MAX} bytes")
        with self._lock:
            keep = not self._closed and not response.will_close and len(self._idle) < _IDLE_MAX
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        return response.status, response.headers, body

    def _answer(self, what: str, status: int, headers: http.client.HTTPMessage, data: bytes, repeated: bool) -> Answer:
        try:
            body = json.loads(data) if data else None
        except ValueError:
            body = None
        if status < 300:
            return Answer(body, _server_s(headers.get("Date")), repeated)
        said = body if isinstance(body, dict) else {}
        reason = str(said.get("reason") or http.client.responses.get(status, ""))
        message = " ".join(str(said.get("message") or reason or status).split())[:_MESSAGE_CHARACTERS_MAX]
        if status == 401:
            message = "the credentials are not accepted: is the kubeconfig's token or certificate expired?"
        raise KubernetesError(f"Kubernetes at {self.access.server} refuses {what}: {message}", status, reason, repeated)

    def _unreachable(self, error: Exception, timeout_s: float) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"Kubernetes at {self.access.server}: its certificate is not trusted: {error.verify_message}"
        why = "timed out" if isinstance(error, TimeoutError) else getattr(error, "strerror", "") or error
        return f"Kubernetes at {self.access.server} does not answer (waited {timeout_s:.3g} s): {why}; is it reachable?"


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() else 0.0


def _server_s(date: str | None) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() if date else 0.0
    except (TypeError, ValueError):
        return 0.0
