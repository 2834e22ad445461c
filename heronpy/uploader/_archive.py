"""The format of a package: a tar file, compressed with gzip, of regular files and directories.

The same files make the same bytes, so that equal packages have equal names: members are sorted, and owners, times and
most of the mode are left out.

Python's own `tarfile` filters are not used to unpack: what they must decide about links has been wrong more than once.
Here links do not exist, so there is nothing to decide.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any

from heronpy.errors import AlreadyExistsError, NotFoundError, StateError, UsageError

BYTES_MAX = 8 << 30
"""A package that would become larger than this is refused."""
FILES_MAX = 200_000
"""A package with more files and directories than this is refused."""
_HEADER_BYTES_MAX = 1 << 20
_COPY_BYTES = 1 << 20
_NAME_CHARACTERS_MAX = 4096
_EXECUTABLE = 0o100


def pack(
    source: Path | Sequence[tuple[str, Path]],
    archive: Path,
    *,
    left_out: Callable[[PurePosixPath], bool] = lambda path: False,
    bytes_max: int = BYTES_MAX,
    files_max: int = FILES_MAX,
) -> Path:
    """Write the files of directories into a package. Returns `archive`.

    A link to a file is packed as the file.

    Args:
        source: What is packed: a directory, or several, each with its path in the package (`""`: the package itself).
        archive: The file to write.
        left_out: Says of a path in the package that neither it nor what is below it is packed.
        bytes_max, files_max: As for `unpack`.

    Raises:
        NotFoundError: there is no such directory, or a file of it has gone meanwhile.
        UsageError: something in it is neither a file nor a directory, or a link to a directory or to nothing, or there
            is too much of it.
        StateError: a file cannot be read, or the package cannot be written.
    """
    sources = [("", source)] if isinstance(source, Path) else list(source)
    for _, directory in sources:
        if not directory.is_dir():
            raise NotFoundError(f"{directory} is not a directory")
    room, members, what = bytes_max, 0, f"the package of {sources[0][1]}"
    try:
        with (
            archive.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as tar,
        ):
            for name, path in chain.from_iterable(_members(*one, left_out) for one in sources):
                members += 1
                member = tarfile.TarInfo(name)
                if path.is_dir() and not path.is_symlink():
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(member)
                elif path.is_file():
                    with path.open("rb") as f:
                        found = os.fstat(f.fileno())
                        member.size, member.mode = found.st_size, 0o755 if found.st_mode & _EXECUTABLE else 0o644
                        room -= member.size
                        _check_room(what, room, bytes_max, members, files_max)
                        tar.addfile(member, f)
                else:
                    raise UsageError(f"{path} cannot be packed: it is {_kind(path)}")
                _check_room(what, room, bytes_max, members, files_max)
    except FileNotFoundError as e:
        raise NotFoundError(f"{e.filename} has gone while it was packed") from e
    except OSError as e:
        raise StateError(f"{e.filename or archive} cannot be packed: {e.strerror or e}") from e
    return archive


def unpack(archive: Path, into: Path, *, bytes_max: int = BYTES_MAX, files_max: int = FILES_MAX) -> None:
    """Unpack a package into a new directory, which is there whole on return, or not at all after an error.

    Files are the caller's alone (0600, or 0700 if they are executable).

    Args:
        archive: The package.
        into: The directory to make. It must not exist, and its parent must.
        bytes_max: How large all files together may be.
        files_max: How many files and directories there may be.

    Raises:
        AlreadyExistsError: `into` exists.
        UsageError: it is not a package, or a damaged or a hostile one; says why.
        StateError: it cannot be read, or the directory cannot be written.
    """
    if into.exists() or into.is_symlink():
        raise AlreadyExistsError(f"{into} exists already")
    scratch = None
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{into.name}.", dir=into.parent))
        with archive.open("rb") as raw:
            _unpack(archive, raw, scratch, bytes_max, files_max)
        scratch.rename(into)
        scratch = None
    except (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, UnicodeError, ValueError) as e:
        raise UsageError(f"{archive.name} is not a package, or a damaged one: {e}") from e
    except OSError as e:
        raise StateError(f"{archive.name} cannot be unpacked into {into}: {e.strerror or e}") from e
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _members(prefix: str, directory: Path, left_out: Callable[[PurePosixPath], bool]) -> Iterator[tuple[str, Path]]:
    """All below a directory, in an order that only the names decide, a directory before what is in it."""
    for folder, directories, files in os.walk(directory, onerror=_raise):
        here = Path(folder)
        place = PurePosixPath(prefix, here.relative_to(directory).as_posix())
        directories[:] = sorted(name for name in directories if not left_out(place / name))
        kept = sorted(name for name in files if not left_out(place / name))
        yield from (((place / name).as_posix(), here / name) for name in (*directories, *kept))


def _kind(path: Path) -> str:
    if not path.is_symlink():
        return "neither a file nor a directory"
    return f"a link to {'a directory: copy it there' if path.is_dir() else 'nothing: remove it'}"


def _raise(error: OSError) -> None:
    raise error


def _check_room(what: str, room: int, bytes_max: int, members: int, files_max: int) -> None:
    if room < 0:
        raise UsageError(f"{what} is larger than {bytes_max} bytes when unpacked")
    if members > files_max:
        raise UsageError(f"{what} has more than {files_max} files")


def _unpack(archive: Path, raw: IO[bytes], into: Path, bytes_max: int, files_max: int) -> None:
    room, members = bytes_max, 0
    with gzip.GzipFile(fileobj=raw, mode="rb") as packed:
        source: Any = _Bounded(packed)
        with tarfile.open(fileobj=source, mode="r|") as tar:
            while True:
                source.allowance = _HEADER_BYTES_MAX
                member = tar.next()
                if member is None:
                    break
                if member.size < 0:
                    raise tarfile.ReadError("a member has a negative size")
                members += 1
                room -= member.size
                _check_room(archive.name, room, bytes_max, members, files_max)
                source.allowance = member.size + _HEADER_BYTES_MAX
                _write(archive, tar, member, into)
        while packed.read(_COPY_BYTES):  # to its end, where gzip's checksum is
            room -= _COPY_BYTES
            _check_room(archive.name, room, bytes_max, members, files_max)


def _write(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> None:
    parts = _parts(archive, member.name)
    path = into.joinpath(*parts)
    if member.type == tarfile.DIRTYPE:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    # Sparse files are files of another type, or say so in their header.
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
        raise UsageError(f"{archive.name} is refused: its member {member.name!r} is not a regular file or a directory")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    mode = 0o700 if member.mode & _EXECUTABLE else 0o600
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except (FileExistsError, NotADirectoryError) as e:
        raise UsageError(f"{archive.name} is refused: its member {member.name!r} is there twice") from e
    with os.fdopen(fd, "wb") as f:
        shutil.copyfileobj(source, f, _COPY_BYTES)
        if f.tell() != member.size:
            raise UsageError(f"{archive.name} is damaged: {member.name!r} is truncated")


def _parts(archive: Path, name: str) -> tuple[str, ...]:
    parts = tuple(part for part in name.split("/") if part != ".") if name not in (".", "./") else ()
    bad = name.startswith("/") or ".." in parts or "" in parts[:-1] or "\0" in name or len(name) > _NAME_CHARACTERS_MAX
    if bad:
        raise UsageError(f"{archive.name} is refused: its member {name[:200]!r} would be written elsewhere")
    return tuple(part for part in parts if part)


class _Bounded:
    """Reads another file, but no more than is allowed until the next member: headers are read into memory."""

    def __init__(self, source: gzip.GzipFile) -> None:
        self._source = source
        self.allowance = _HEADER_BYTES_MAX

    def read(self, size: int) -> bytes:
        self.allowance -= size
        if self.allowance < 0:
            raise tarfile.ReadError("a header is too large")
        return self._source.read(size)
