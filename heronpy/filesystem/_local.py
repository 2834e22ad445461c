"""Files in directories of this host, or in shared ones."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from heronpy.files import create_file, replace_file, sync
from heronpy.filesystem._spi import Files, Found


class LocalFiles(Files[Path]):
    """Files of a POSIX file system. Names that begin with a dot are not listed: they are being written."""

    renames = True

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def stat(self, path: Path) -> Found[Path]:
        return _found(path, path.stat())

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[tuple[BinaryIO, Found[Path]]]:
        with path.open("rb") as file:
            yield file, _found(path, os.fstat(file.fileno()))

    def write(self, path: Path, data: bytes) -> None:
        replace_file(path, data)

    def create(self, path: Path, data: bytes) -> bool:
        return create_file(path, data)

    @contextlib.contextmanager
    def writing(self, path: Path) -> Iterator[Path]:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        sync(path)

    def move(self, path: Path, to: Path) -> None:
        path.rename(to)
        sync(to.parent)

    def input(self, path: Path, size_bytes: int | None = None) -> Any:
        return path

    def folders(self, directory: Path, prefix: str = "") -> Iterator[tuple[str, list[Found[Path]]]]:
        names = []
        with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(prefix) and entry.is_dir()]
        for name in names:
            yield name, self.listed(directory / name)

    def listed(self, folder: Path) -> list[Found[Path]]:
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name[0] != ".":
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        status = entry.stat()
                        if entry.is_file():
                            found.append(_found(Path(entry.path), status))
        return sorted(found, key=lambda file: file.path)

    def find(self, folder: Path, prefix: str = "") -> list[Found[Path]]:
        found = []
        for path in sorted(Path(at, name) for at, _, names in os.walk(folder) for name in names if name[0] != "."):
            if path.relative_to(folder).as_posix().startswith(prefix):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    found.append(self.stat(path))
        return found

    def delete(self, paths: Iterable[Path]) -> None:
        for path in paths:
            path.unlink(missing_ok=True)

    def delete_folder(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)


def _found(path: Path, status: os.stat_result) -> Found[Path]:
    return Found(path, status.st_size, f"{status.st_size}:{status.st_mtime_ns}", status.st_mtime_ns / 1e9)
