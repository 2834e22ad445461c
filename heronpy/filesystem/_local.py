"""Files in directories of this host, or in shared ones."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from heronpy.files import create_file, replace_file, sync
from heronpy.filesystem._spi import Files, Found


class LocalFiles(Files[Path]):
    """Files of a POSIX file system. Names that begin with a dot are not listed: they are being written."""

    renames = True

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

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
                        stamp = f"{status.st_size}:{status.st_mtime_ns}"
                        if entry.is_file():
                            found.append(Found(Path(entry.path), status.st_size, stamp, status.st_mtime_ns / 1e9))
        return sorted(found, key=lambda file: file.path)

    def below(self, folder: Path) -> list[Path]:
        return sorted(Path(at, name) for at, _, names in os.walk(folder) for name in names if name[0] != ".")

    def delete(self, paths: Iterable[Path]) -> None:
        for path in paths:
            path.unlink(missing_ok=True)

    def delete_folder(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
