"""Files in an object store, or in HDFS: whatever `heronpy.checkpoints.open_storage` opens."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from heronpy.errors import NotFoundError, ReadFailedError
from heronpy.filesystem._spi import Files, Found
from heronpy.filesystem._url_path import UrlPath

if TYPE_CHECKING:
    from heronpy.checkpoints import CheckpointStorage

_WHOLE_BYTES = 1024 * 1024
"""A file that is not larger is read in one request: another one costs as much as so many bytes."""
_TAIL_BYTES = 64 * 1024
"""Read first of a larger one: there, Parquet has its footer."""
_CHUNK_BYTES = 1024 * 1024


class StoredFiles(Files[UrlPath]):
    """Objects below a URL: each appears whole, under its name; folders are only parts of names."""

    renames = False

    def __init__(self, storage: CheckpointStorage) -> None:
        self._storage = storage

    def read(self, path: UrlPath) -> bytes:
        with _not_found(path):
            return self._storage.read(path.inner)

    def write(self, path: UrlPath, data: bytes) -> None:
        self._storage.put(path.inner, [data])

    def create(self, path: UrlPath, data: bytes) -> bool:
        return self._storage.create(path.inner, data)

    @contextlib.contextmanager
    def writing(self, path: UrlPath) -> Iterator[BinaryIO]:
        # Not a stream into the store: what is left of that when the block fails would be taken for the whole.
        with tempfile.TemporaryFile(prefix="heron-upload-") as file:
            yield file
            file.seek(0)
            self._storage.put(path.inner, iter(lambda: file.read(_CHUNK_BYTES), b""))

    def move(self, path: UrlPath, to: UrlPath) -> None:
        with _not_found(path):
            self._storage.copy(path.inner, to.inner)
        self._storage.delete([path.inner])

    def input(self, path: UrlPath, size_bytes: int | None = None) -> Any:
        import pyarrow as pa

        with _not_found(path):
            size = self._storage.size(path.inner) if size_bytes is None else size_bytes
            if size > _WHOLE_BYTES:
                return pa.PythonFile(_Input(self._storage, path, size), mode="r")
            return pa.BufferReader(_end(self._storage, path, 0, size))

    def folders(self, directory: UrlPath, prefix: str = "") -> Iterator[tuple[str, list[Found[UrlPath]]]]:
        below = _below(directory)
        found = (
            (rest.partition("/")[0], entry)
            for entry in self._storage.listed(below + prefix)
            if (rest := entry.name.removeprefix(below)).count("/") == 1
        )
        for name, entries in itertools.groupby(sorted(found, key=lambda pair: pair[0]), lambda pair: pair[0]):
            yield name, [self._found(directory, entry) for _, entry in entries]

    def listed(self, folder: UrlPath) -> list[Found[UrlPath]]:
        below = _below(folder)
        return [
            self._found(folder, entry)
            for entry in self._storage.listed(below)
            if "/" not in entry.name.removeprefix(below)
        ]

    def below(self, folder: UrlPath) -> list[UrlPath]:
        return [UrlPath(folder.root, name) for name in self._storage.names(_below(folder))]

    def _found(self, near: UrlPath, entry: Any) -> Found[UrlPath]:
        return Found(UrlPath(near.root, entry.name), entry.size, entry.stamp, entry.modified_s)

    def delete(self, paths: Iterable[UrlPath]) -> None:
        self._storage.delete([path.inner for path in paths])

    def delete_folder(self, folder: UrlPath) -> None:
        self._storage.delete(self._storage.names(_below(folder)))


def _below(folder: UrlPath) -> str:
    return f"{folder.inner}/" if folder.inner else ""


class _Input(io.RawIOBase):
    """A stored file for pyarrow, which asks for ranges."""

    def __init__(self, storage: CheckpointStorage, path: UrlPath, size: int) -> None:
        self._storage, self._path, self._size = storage, path, size
        self._at = 0
        self._tail_at = max(0, size - _TAIL_BYTES)
        self._tail = _end(storage, path, self._tail_at, size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        at, self._at = self._at, max(self._at, end)
        if at >= end:
            return b""
        if at >= self._tail_at:
            return self._tail[at - self._tail_at : end - self._tail_at]
        with _not_found(self._path):
            return _exactly(self._storage, self._path, at, end - at)


def _end(storage: CheckpointStorage, path: UrlPath, offset: int, size: int) -> bytes:
    """What is there from an offset on: a file that is longer than its size now was replaced, and is not damaged."""
    return _checked(path, offset, size - offset, storage.read(path.inner, offset, size - offset + 1))


def _exactly(storage: CheckpointStorage, path: UrlPath, offset: int, length: int) -> bytes:
    return _checked(path, offset, length, storage.read(path.inner, offset, length))


def _checked(path: UrlPath, offset: int, length: int, data: bytes) -> bytes:
    if len(data) != length:
        raise ReadFailedError(f"{path} has other bytes than when it was listed: {len(data)} of {length} at {offset}")
    return data


@contextlib.contextmanager
def _not_found(path: UrlPath) -> Iterator[None]:
    try:
        yield
    except NotFoundError as e:
        raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from e
