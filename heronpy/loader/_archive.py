"""Archives with the user's code: zip files, and pex files, which are zip files with a PEX-INFO.

A pex is not run: its bootstrap would build its own sys.path, without this engine. It is extracted, its distributions
below `.deps/` go onto sys.path, and its entry point is run by us.
"""

from __future__ import annotations

import contextlib
import json
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from heronpy.errors import UsageError

EXTRACTED_BYTES_MAX = 8 << 30
"""An archive that would become larger than this is refused."""

# A pex made for Heron brings its own heronpy; the ones below it must be ours, too, because ours are loaded already and
# a process that the user's code starts must not find others.
_OURS = frozenset(("heronpy", "protobuf", "grpcio"))
_BOOTSTRAP = frozenset((".bootstrap", "__pex__"))


@dataclass(frozen=True, slots=True)
class Archive:
    """What an archive says of itself."""

    path: Path
    is_pex: bool
    entry_point: str
    """Of a pex: `module` or `module:function`; empty if it has none."""
    has_main: bool
    """It has a `__main__.py` to run; a pex's own is its bootstrap and does not count."""
    package_paths: tuple[str, ...]
    """Directories for sys.path, relative to where it is extracted."""


def read(path: Path) -> Archive:
    """Look into an archive.

    Raises:
        UsageError: it is not an archive, or a damaged one.
    """
    with _opened(path) as archive:
        names = archive.namelist()
        is_pex = "PEX-INFO" in names
        info = _pex_info(path, archive.read("PEX-INFO")) if is_pex else {}
    distributions = {PurePosixPath(name).parts[1] for name in names if re.match(r"\.deps/[^/]+", name)}
    listed = [d for d in info.get("distributions") or {} if d in distributions]
    ordered = [*listed, *sorted(distributions - set(listed))]
    return Archive(
        path=path,
        is_pex=is_pex,
        entry_point=str(info.get("entry_point") or ""),
        has_main=not is_pex and "__main__.py" in names,
        package_paths=(".", *(f".deps/{d}" for d in ordered if not _is_ours(d))),
    )


def package_paths_of(path: Path) -> tuple[str, ...]:
    """The directories for sys.path, relative to where an archive is extracted. Raises as `read`."""
    return read(path).package_paths


def extract(path: Path, into: Path) -> None:
    """Extract an archive, without what the engine brings itself.

    Raises:
        UsageError: it is damaged, too large, or a member would be written outside of `into`.
    """
    with _opened(path) as archive:
        members = archive.infolist()
        for member in members:
            _check(path, member)
        if sum(member.file_size for member in members) > EXTRACTED_BYTES_MAX:
            raise UsageError(f"{path} is larger than {EXTRACTED_BYTES_MAX >> 30} GiB when extracted")
        is_pex = any(member.filename == "PEX-INFO" for member in members)
        for member in members:
            if _left_out(member.filename, is_pex=is_pex):
                continue
            written = Path(archive.extract(member, into))
            mode = member.external_attr >> 16
            if not member.is_dir() and mode & stat.S_IXUSR:
                written.chmod(written.stat().st_mode | stat.S_IXUSR)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, EOFError, zlib.error) as e:
        raise UsageError(f"{path} is not a zip archive, or a damaged one: {e}") from e
    except RuntimeError as e:  # zipfile's error for encrypted members
        raise UsageError(f"{path} cannot be read: {e}") from e
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror or e}") from e


def _pex_info(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        info = json.loads(raw)
    except (ValueError, RecursionError) as e:
        raise UsageError(f"{path}: PEX-INFO is not valid JSON: {e}") from e
    if not isinstance(info, dict):
        raise UsageError(f"{path}: PEX-INFO is not a JSON object")
    return info


def _check(path: Path, member: zipfile.ZipInfo) -> None:
    # The original name: zipfile has made the other one harmless already, and a harmless name is not what was meant.
    name = member.orig_filename.replace("\\", "/")
    if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in name.split("/") or "\0" in name:
        raise UsageError(f"{path} is refused: its member {member.orig_filename!r} would be written elsewhere")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise UsageError(f"{path} is refused: its member {member.orig_filename!r} is a link")


def _left_out(name: str, *, is_pex: bool) -> bool:
    parts = PurePosixPath(name).parts
    if not parts:
        return True
    if parts[0] == "heronpy":
        return True
    if not is_pex:
        return False
    if parts[0] in _BOOTSTRAP or parts == ("__main__.py",):
        return True
    return len(parts) > 1 and parts[0] == ".deps" and _is_ours(parts[1])


def _is_ours(distribution: str) -> bool:
    """Whether `name-version-….whl` is a distribution that the engine brings itself."""
    return re.sub(r"[-_.]+", "-", distribution.split("-")[0]).lower() in _OURS
