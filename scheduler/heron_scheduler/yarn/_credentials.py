"""Hadoop's files of credentials: tokens, and secrets by name. How YARN brings what is secret to a container.

The NodeManager writes what the submitter, or the application master, has put into a container's launch context into a
file that the container's user alone can read, and names it in HADOOP_TOKEN_FILE_LOCATION.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from heronpy.errors import StateError
from heronpy.proto import hadoop_pb2

LOCATION_ENV = "HADOOP_TOKEN_FILE_LOCATION"
MASTER_TOKEN = "YARN_AM_RM_TOKEN"
"""The kind of the token with which an application master logs in to the ResourceManager."""
_MAGIC = b"HDTS"
_WRITABLE = 0


@dataclass(frozen=True, slots=True)
class Credentials:
    """The content of a file of credentials."""

    tokens: tuple[hadoop_pb2.Token, ...] = ()
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def token(self, kind: str) -> hadoop_pb2.Token:
        """The token of this kind.

        Raises:
            StateError: there is none.
        """
        found = [one for one in self.tokens if one.kind == kind]
        if not found:
            raise StateError(f"YARN has given this container no token of the kind {kind}")
        return found[0]

    def encode(self) -> bytes:
        """In the format that every version of Hadoop reads."""
        out = [_MAGIC, bytes([_WRITABLE]), _vint(len(self.tokens))]
        for one in self.tokens:
            fields = (one.service.encode(), one.identifier, one.password, one.kind.encode(), one.service.encode())
            out += [_sized(part) for part in fields]
        out.append(_vint(len(self.secrets)))
        for name, secret in self.secrets.items():
            out += [_sized(name.encode()), _sized(secret)]
        return b"".join(out)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises StateError: it is damaged, or of a format that is not known. No message has any of its content."""
        try:
            if data[:4] != _MAGIC or data[4] != _WRITABLE:
                raise StateError(f"the file of credentials is of a format that is not known ({data[4]})")
            reader = _Reader(data, 5)
            tokens, secrets = [], {}
            for _ in range(reader.number()):
                reader.sized()  # its alias
                identifier, password, kind, service = (reader.sized() for _ in range(4))
                tokens.append(
                    hadoop_pb2.Token(
                        identifier=identifier, password=password, kind=kind.decode(), service=service.decode()
                    )
                )
            for _ in range(reader.number()):
                name = reader.sized().decode()
                secrets[name] = reader.sized()
        except (IndexError, ValueError, struct.error) as e:
            raise StateError(f"the file of credentials is damaged ({type(e).__name__})") from None
        return cls(tuple(tokens), secrets)


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def number(self) -> int:
        """Hadoop's variable length: -112 to 127 in a byte, else the count of bytes that follow, big endian."""
        (first,) = struct.unpack_from("b", self._data, self._at)
        self._at += 1
        if first >= -112:
            return int(first)
        negative = first < -120
        size = -(first + 120) if negative else -(first + 112)
        value = int.from_bytes(self._take(size), "big")
        return ~value if negative else value

    def sized(self) -> bytes:
        return self._take(self.number())

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError("longer than the file")
        self._at += size
        return self._data[self._at - size : self._at]


def _vint(value: int) -> bytes:
    """A length."""
    if value <= 127:
        return bytes([value])
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return struct.pack("b", -112 - len(digits)) + digits


def _sized(data: bytes) -> bytes:
    return _vint(len(data)) + data
