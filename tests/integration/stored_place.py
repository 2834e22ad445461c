"""A prefix of a bucket for tests of sources and sinks in S3."""

from __future__ import annotations

import io
import itertools

from heronpy.filesystem import UrlPath, location, stored_files
from heronpy.testing.servers import S3Server

_NUMBERS = itertools.count()


class Place:
    """A prefix of a bucket."""

    def __init__(self, server: S3Server) -> None:
        self.name = f"place-{next(_NUMBERS)}"
        self._url = server.url("files")
        self.directory = server.directory / "buckets" / "files" / self.name
        root = location("it", self._url)
        assert isinstance(root, UrlPath)
        self.path = root / self.name
        self.files = stored_files(root)

    def url(self, pattern: str = "") -> str:
        base, mark, options = self._url.partition("?")
        return f"{base}/{self.name}{f'/{pattern}' if pattern else ''}{mark}{options}"

    def put(self, name: str, data: bytes) -> None:
        self.files.upload(self.path / name, io.BytesIO(data))

    def shown(self, name: str) -> str:
        return f"s3://files/{self.name}/{name}"


def all_but(kit: type, *names: str) -> tuple[str, ...]:
    """The tests of a kit that are to take long: others show the same, and each talks to a server here."""
    return tuple(name for name in dir(kit) if name.startswith("test_") and name not in names)
