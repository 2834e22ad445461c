"""How large an archive may be, asked before `zipfile` reads its directory into memory."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

from heronpy.errors import UsageError

MEMBERS_MAX = 50_000
DIRECTORY_BYTES_MAX = 16 << 20
EXTRACTED_BYTES_MAX = 2 << 30
_END = struct.Struct("<4s4H2LH")
_COMMENT_BYTES_MAX = 0xFFFF
_LOCATOR_BYTES = 20
"""In the ZIP64 format, what comes right before the end."""


def check_archive(path: Path) -> None:
    """Refuse what is not a zip archive, or one that would take too much to look into or to extract.

    Raises:
        UsageError: says what is wrong.
    """
    with path.open("rb") as f:
        size = f.seek(0, os.SEEK_END)
        f.seek(max(0, size - _LOCATOR_BYTES - _END.size - _COMMENT_BYTES_MAX))
        tail = f.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise UsageError("the program is not a zip archive")
    _, _, _, _, members, directory_bytes, _, _ = _END.unpack_from(tail, at)
    if tail[max(0, at - _LOCATOR_BYTES) : at].startswith(b"PK\x06\x07"):
        # `zipfile` believes the larger format's numbers, whatever is said here.
        raise UsageError("the program is a zip archive in the ZIP64 format: it has too many files, or is too large")
    if members > MEMBERS_MAX or directory_bytes > DIRECTORY_BYTES_MAX:
        raise UsageError(f"the program has more than {MEMBERS_MAX} files, or a directory that is too large")
    try:
        with zipfile.ZipFile(path) as archive:
            found = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as e:
        raise UsageError(f"the program is not a zip archive, or a damaged one: {e}") from e
    if len(found) > MEMBERS_MAX:
        raise UsageError(f"the program has more than {MEMBERS_MAX} files")
    if sum(member.file_size for member in found) > EXTRACTED_BYTES_MAX:
        raise UsageError(f"the program is larger than {EXTRACTED_BYTES_MAX >> 30} GiB when extracted")
