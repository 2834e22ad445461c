"""Checkpoints in a dict, for tests that store thousands."""

from __future__ import annotations

from collections.abc import Iterable

from heronpy.checkpoints import CheckpointStorage, check_storage_name
from heronpy.errors import NotFoundError


class MemoryStorage(CheckpointStorage):
    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        self.stored[check_storage_name(name)] = b"".join(chunks)

    def create(self, name: str, data: bytes) -> bool:
        return self.stored.setdefault(check_storage_name(name), data) == data

    def size(self, name: str) -> int:
        return len(self.read(name))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        if name not in self.stored:
            raise NotFoundError(f"there is no {name}")
        return self.stored[name][offset : None if length is None else offset + length]

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self.stored if name.startswith(prefix))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.stored.pop(name, None)
