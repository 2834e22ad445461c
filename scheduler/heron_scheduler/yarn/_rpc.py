"""Hadoop's RPC, version 9, as far as the holder of a token needs it: one connection, one call at a time.

connection  "hrpc" 9 0 -33   then frames: length (4 bytes, big endian), header, message; both with their length
login       call -33: SASL messages, until the server says success
context     call -3: which protocol; no answer
calls       0, 1, …: header, request header, request; answered by header and reply
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
import uuid
from typing import Self, TypeVar

from google.protobuf.message import DecodeError, Message

from heron_scheduler.yarn._sasl import DigestClient
from heronpy.errors import UnavailableError
from heronpy.proto import hadoop_pb2

R = TypeVar("R", bound=Message)

TIMEOUT_S = 20.0
_FRAME_BYTES_MAX = 64 << 20
_SHIFT_MAX = 28
"""A length has 32 bits."""
_PROTOCOL_BUFFERS = 2
_SASL_CALL, _CONTEXT_CALL = -33, -3
_SUCCESS, _NEGOTIATE, _INITIATE, _CHALLENGE, _RESPONSE = range(5)


class RemoteError(UnavailableError):
    """A server of Hadoop has refused a call."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind.rpartition(".")[2]
        """Java's class of the exception, without its package."""
        super().__init__(f"{self.kind}: {message.strip().partition(chr(10))[0][:500]}")


class RpcClient:
    """One connection, logged in. A context manager."""

    def __init__(
        self, host: str, port: int, protocol: str, token: hadoop_pb2.Token, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Connect and log in. No answer takes longer than `timeout_s`.

        Raises:
            RemoteError: the server refuses the token.
            UnavailableError: it does not answer, or speaks otherwise.
        """
        self._where, self._protocol = f"{host}:{port}", protocol
        self._timeout_s = timeout_s
        self._client_id, self._call = uuid.uuid4().bytes, 0
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as e:
            raise UnavailableError(f"{self._where} does not answer: {e.strerror or e}") from e
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._send(b"hrpc" + struct.pack("Bbb", 9, 0, -33))
            self._log_in(token)
            self._write(_CONTEXT_CALL, -1, hadoop_pb2.ConnectionContext(protocol=protocol))
        except BaseException:
            self._socket.close()
            raise

    def call(self, method: str, request: Message, reply: type[R]) -> R:
        """Call a method.

        Raises:
            RemoteError: it has failed there.
            UnavailableError: there is no answer; the connection is of no use any more.
        """
        self._call += 1
        header = hadoop_pb2.RequestHeader(method_name=method, protocol_name=self._protocol, protocol_version=1)
        self._write(self._call, 0, header, request)
        return self._read(reply)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _log_in(self, token: hadoop_pb2.Token) -> None:
        answer = self._sasl(hadoop_pb2.RpcSasl(state=_NEGOTIATE))
        offered = [one for one in answer.auths if (one.method, one.mechanism) == ("TOKEN", "DIGEST-MD5")]
        if answer.state != _NEGOTIATE or not offered:
            others = ", ".join(f"{one.method} by {one.mechanism}" for one in answer.auths) or "nothing"
            raise UnavailableError(f"{self._where} takes no token by DIGEST-MD5, but {others}")
        auth = offered[0]
        digest = DigestClient(token.identifier, token.password, f"{auth.protocol}/{auth.server_id}")
        first = digest.respond(auth.challenge) if auth.HasField("challenge") else b""
        auth.ClearField("challenge")
        answer = self._sasl(hadoop_pb2.RpcSasl(state=_INITIATE, token=first, auths=[auth]))
        if answer.state == _CHALLENGE:
            answer = self._sasl(hadoop_pb2.RpcSasl(state=_RESPONSE, token=digest.respond(answer.token)))
        if answer.state != _SUCCESS:
            raise UnavailableError(f"{self._where} does not accept the login")
        digest.verify(answer.token)

    def _sasl(self, message: hadoop_pb2.RpcSasl) -> hadoop_pb2.RpcSasl:
        self._write(_SASL_CALL, -1, message)
        return self._read(hadoop_pb2.RpcSasl)

    def _write(self, call: int, retry: int, *messages: Message) -> None:
        client = b"" if call == _SASL_CALL else self._client_id
        header = hadoop_pb2.RpcRequestHeader(
            rpc_kind=_PROTOCOL_BUFFERS, rpc_op=0, call_id=call, client_id=client, retry_count=retry
        )
        body = b"".join(_delimited(one) for one in (header, *messages))
        self._send(struct.pack(">I", len(body)) + body)

    def _read(self, kind: type[R]) -> R:
        deadline_s = time.monotonic() + self._timeout_s  # for all of it: a byte now and then is no answer
        (size,) = struct.unpack(">I", self._receive(4, deadline_s))
        if size > _FRAME_BYTES_MAX:
            raise UnavailableError(f"{self._where} does not speak Hadoop's RPC")
        frame = self._receive(size, deadline_s)
        try:
            header, at = _parsed(hadoop_pb2.RpcResponseHeader, frame, 0)
            if header.status:
                raise RemoteError(header.exception_class_name, header.error_msg)
            return _parsed(kind, frame, at)[0]
        except (DecodeError, IndexError) as e:
            raise UnavailableError(f"{self._where} does not speak Hadoop's RPC") from e

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(data)
        except OSError as e:
            raise UnavailableError(f"{self._where} does not answer: {e.strerror or e}") from e

    def _receive(self, size: int, deadline_s: float) -> bytes:
        parts = bytearray()
        try:
            while len(parts) < size:
                if (left_s := deadline_s - time.monotonic()) <= 0:
                    raise TimeoutError("timed out")
                self._socket.settimeout(left_s)
                part = self._socket.recv(min(size - len(parts), 1 << 20))
                if not part:
                    raise UnavailableError(f"{self._where} has closed the connection")
                parts += part
        except OSError as e:
            raise UnavailableError(f"{self._where} does not answer: {e.strerror or e}") from e
        return bytes(parts)


def _delimited(message: Message) -> bytes:
    data = message.SerializeToString()
    size, prefix = len(data), bytearray()
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes([*prefix, size]) + data


def _parsed(kind: type[R], frame: bytes, at: int) -> tuple[R, int]:
    """A message with its length before it, and where it ends."""
    size, shift = 0, 0
    while True:
        size |= (frame[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if frame[at - 1] < 128:
            break
        if shift > _SHIFT_MAX:
            raise DecodeError("no length")
    if at + size > len(frame):
        raise DecodeError("longer than the frame")
    message = kind()
    message.ParseFromString(frame[at : at + size])
    return message, at + size
