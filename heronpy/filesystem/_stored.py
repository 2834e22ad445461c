"""Files in an object store, or in HDFS: whatever `heronpy.checkpoints.open_storage` opens."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from heronpy.errors import NotFoundError, ReadFailedError
from heronpy.filesystem._spi import Files, Found
from heronpy.filesystem._url_path import UrlPath

if TYPE_CHECKING:
    from heronpy.checkpoints import CheckpointStorage, Listed

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

    def stat(self, path: UrlPath) -> Found[UrlPath]:
        with _not_found(path):
            return self._found(path, self._storage.stat(path.inner))

    @contextlib.contextmanager
    def opened(self, path: UrlPath) -> Iterator[tuple[BinaryIO, Found[UrlPath]]]:
        with _not_found(path):
            found = self._storage.stat(path.inner)
        yield cast(BinaryIO, _Input(self._storage, path, found)), self._found(path, found)

    def write(self, path: UrlPath, data: bytes) -> None:
        self._storage.put(path.inner, [data])

    def create(self, path: UrlPath, data: bytes) -> bool:
        return self._storage.create(path.inner, data)

    @contextlib.contextmanager
    def writing(self, path: UrlPath) -> Iterator[BinaryIO]:
        # Not a stream into the store: what is left of that when the block fails would be taken for the whole.
        with tempfile.TemporaryFile(prefix="heron-upload-") as file:
            yield file
            self.upload(path, file)

    def upload(self, path: UrlPath, file: BinaryIO) -> None:
        """Store all of an open file. It may be repeated."""
        file.seek(0)
        self._storage.put(path.inner, iter(lambda: file.read(_CHUNK_BYTES), b""))

    def copy(self, path: UrlPath, to: UrlPath) -> None:
        """Store a file under a second name, whole or not at all."""
        with _not_found(path):
            self._storage.copy(path.inner, to.inner)

    def move(self, path: UrlPath, to: UrlPath) -> None:
        self.copy(path, to)
        self._storage.delete([path.inner])

    def input(self, path: UrlPath, size_bytes: int | None = None) -> Any:
        import pyarrow as pa

        with _not_found(path):
            found = self._storage.stat(path.inner) if size_bytes is None else None
            size = size_bytes if found is None else found.size
            assert size is not None
            if size <= _WHOLE_BYTES:
                return pa.BufferReader(_whole(self._storage, path, size))
            # Parts of one object, whatever comes in its place: the first answer says which.
            at = size - _TAIL_BYTES
            if found is None:
                tail, found = self._storage.read_found(path.inner, at, _TAIL_BYTES)
                if found.size != size:
                    raise ReadFailedError(
                        f"{path} has other bytes than when it was listed: {found.size} instead of {size}"
                    )
            else:
                tail = self._storage.read_of(found, at, _TAIL_BYTES)
            _checked(path, at, _TAIL_BYTES, tail)
            return pa.PythonFile(_Input(self._storage, path, found, tail), mode="r")

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

    def find(self, folder: UrlPath, prefix: str = "") -> list[Found[UrlPath]]:
        return [self._found(folder, entry) for entry in self._storage.listed(_below(folder) + prefix)]

    def _found(self, near: UrlPath, entry: Any) -> Found[UrlPath]:
        return Found(UrlPath(near.root, entry.name), entry.size, entry.stamp, entry.modified_s)

    def delete(self, paths: Iterable[UrlPath]) -> None:
        self._storage.delete([path.inner for path in paths])

    def remove_torn(self, folder: UrlPath, names: Iterable[str]) -> None:
        self._storage.remove_torn([_below(folder) + name for name in names])

    def delete_folder(self, folder: UrlPath) -> None:
        self._storage.delete(self._storage.names(_below(folder)))


def _below(folder: UrlPath) -> str:
    return f"{folder.inner}/" if folder.inner else ""


class _Input(io.RawIOBase):
    """A stored file, of which ranges are asked for."""

    def __init__(self, storage: CheckpointStorage, path: UrlPath, found: Listed, tail: bytes = b"") -> None:
        """A file that was found, and what is known of its end: of Parquet it says where the rest is."""
        self._storage, self._path, self._found = storage, path, found
        self._size = found.size
        self._at = 0
        self._tail_at = found.size - len(tail)
        self._tail = tail

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
            return _checked(self._path, at, end - at, self._storage.read_of(self._found, at, end - at))

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _whole(storage: CheckpointStorage, path: UrlPath, size: int) -> bytes:
    """A file: one that is longer than its size now was replaced, and is not damaged."""
    return _checked(path, 0, size, storage.read(path.inner, 0, size + 1))


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
