"""Packages where checkpoints can be, too: in a directory, in S3, in HDFS.

    <sha256>.<generation>.tar.gz            a package
    uses/<package>~<topology id>            a topology uses it
    removing/<package>~<topology id>~<word> a kill of that topology is about to delete it

Of one who stores a package that is there already, and one who deletes it because it is unused, only one may succeed,
and storages have no transactions. So each first says what it is going to do and then looks at what the other has said:
the one creates its use and then looks for a removal, the other creates its removal and then looks for uses. At least
one of them sees the other. Who deletes gives way; who stores takes another name, that of the next generation, so that
no process waits, not even for one that has died.

Each removal has a word of its own: of two that kill one topology, neither ends what the other has said. The mark of one
that has died stays; it is empty.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Self
from urllib.parse import quote

from heronpy.checkpoints import CheckpointStorage, open_storage, storage_below
from heronpy.errors import HeronError, NotFoundError, StateError
from heronpy.uploader._spi import PIECE_BYTES, PackageRef, Uploader, sha256_of, split_url


class StoredUploader(Uploader):
    """Packages in a storage of checkpoints' kind."""

    def __init__(self, storage: CheckpointStorage, url: str) -> None:
        """Of a storage, and the URL that it has."""
        self._storage = storage
        self._url = url

    @classmethod
    def open(cls, url: str) -> Self:
        """Raises as `heronpy.uploader.open_uploader`."""
        return cls(open_storage(url), url)

    def store(self, package: Path, *, topology_id: str) -> PackageRef:
        try:
            sha256, size = sha256_of(package)
            for generation in itertools.count():
                name = f"{sha256}.{generation}.tar.gz"
                try:
                    self._storage.create(_marker("uses", name, topology_id), b"")
                    if not self._storage.names(f"removing/{name}~"):
                        self._put(package, name, size)
                        break
                    self._storage.delete([_marker("uses", name, topology_id)])
                except BaseException:
                    # Also after an interrupt: nothing would remove the use of a topology that does not come to be.
                    with contextlib.suppress(HeronError):
                        self._remove(name, topology_id)
                    raise
        except OSError as e:
            raise StateError(f"{package} cannot be read: {e.strerror or e}") from e
        return PackageRef(storage_below(self._url, name), sha256, size)

    def _put(self, package: Path, name: str, size: int) -> None:
        if self._size(name) != size:
            with package.open("rb") as f:
                self._storage.put(name, iter(lambda: f.read(PIECE_BYTES), b""))

    def pieces(self, ref: PackageRef) -> Iterator[bytes]:
        name = self._name(ref)
        if self._size(name) is None:
            raise NotFoundError(f"there is no package {name} in {self._url}")
        for offset in itertools.count(0, PIECE_BYTES):
            piece = self._storage.read(name, offset, PIECE_BYTES)
            if piece:
                yield piece
            if len(piece) < PIECE_BYTES:
                return

    def remove(self, ref: PackageRef, *, topology_id: str) -> None:
        self._remove(self._name(ref), topology_id)

    def remove_all(self, *, topology_id: str, keep: Collection[PackageRef] = ()) -> None:
        mark = _marker("", "", topology_id).removeprefix("/")
        found = [name.removeprefix("uses/") for name in self._storage.names("uses/")]
        found += [name.removeprefix("removing/").rpartition("~")[0] for name in self._storage.names("removing/")]
        kept = {self._name(ref) for ref in keep}
        for name in dict.fromkeys(found):
            if name.endswith(mark) and name.removesuffix(mark) not in kept:
                self._remove(name.removesuffix(mark), topology_id)

    def _remove(self, name: str, topology_id: str) -> None:
        removal = f"{_marker('removing', name, topology_id)}~{secrets.token_hex(8)}"
        self._storage.delete([_marker("uses", name, topology_id)])
        uses = f"uses/{name}~"
        if self._storage.names(uses):
            return
        self._storage.create(removal, b"")
        if not self._storage.names(uses):
            self._storage.delete([name])
            self._storage.remove_torn([name], lately=True)  # who stores it from now on takes another name
        self._storage.delete([removal])

    def close(self) -> None:
        self._storage.close()

    def _size(self, name: str) -> int | None:
        try:
            return self._storage.size(name)
        except NotFoundError:
            return None

    def _name(self, ref: PackageRef) -> str:
        name = split_url(ref.url)[1]
        if not name.startswith(f"{ref.sha256}."):
            raise StateError(f"{ref.url} is not the package with SHA-256 {ref.sha256}: submit the topology again")
        return name

    def __repr__(self) -> str:
        return f"StoredUploader({self._storage!r})"


def _marker(kind: str, name: str, topology_id: str) -> str:
    return f"{kind}/{name}~{quote(topology_id, safe='')}"
