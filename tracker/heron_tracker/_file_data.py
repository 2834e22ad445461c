"""Files of containers as Heron's API shows them: text in pieces, escaped; a folder as `ls -l` would."""

from __future__ import annotations

import codecs
import html
import stat
import time
from collections.abc import AsyncIterator

from heron_tracker import _models as m
from heronpy.errors import HeronError, UnavailableError
from heronpy.proto import shell_pb2
from heronpy.shell import Shell


def file_data(part: shell_pb2.FilePart) -> m.FileData:
    """Part of a file as text."""
    text, taken = _whole_characters(part.data)
    return m.FileData(offset=part.offset, length=taken, data=html.escape(text))


def _whole_characters(data: bytes) -> tuple[str, int]:
    """The text, and how many bytes it stands for: a character that is cut off is left for the next answer."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    left = len(decoder.getstate()[0])
    if left and left == len(data):  # nothing else: it is not a character
        return data.decode(errors="replace"), len(data)
    return text, len(data) - left


async def download(shell: Shell, path: str, first: shell_pb2.FilePart) -> AsyncIterator[bytes]:
    """The file as long as it was at the beginning, whatever is added or renamed meanwhile.

    Args:
        shell: Whose file it is.
        path: Where it was when `first` was read.
        first: Its first part.
    """
    yield first.data
    offset, size = len(first.data), first.size
    while offset < size:
        part = await _next(shell, path, first.inode, offset)
        if part.inode != first.inode:  # rotated, or replaced
            path = await _path_of(shell, path, first.inode)
            continue
        if not part.data:  # it was truncated
            return
        data = part.data[: size - offset]
        offset += len(data)
        yield data


async def _next(shell: Shell, path: str, inode: int, offset: int) -> shell_pb2.FilePart:
    try:
        return await shell.read(path, offset, -1)
    except HeronError:
        # Shorter than the offset, or not there: what has its name now is another file, or it was truncated.
        end = await shell.read(await _path_of(shell, path, inode), -1, 0)
        if end.inode == inode and end.size < offset:
            return shell_pb2.FilePart(inode=inode)
        return shell_pb2.FilePart()


async def _path_of(shell: Shell, path: str, inode: int) -> str:
    """Where a file of the same folder is now. Raises UnavailableError: it has gone."""
    folder = path.rpartition("/")[0] or "."
    for entry in (await shell.files(folder)).files:
        if entry.inode == inode:
            return entry.path
    raise UnavailableError(f"{path} was removed while it was read")


def file_matches(found: shell_pb2.SearchReply) -> m.FileMatches:
    """What a search has found so far, and where it goes on."""
    return m.FileMatches(
        matches=[
            m.FileMatch(path=match.path, offset=match.offset, line=match.line.decode(errors="replace"))
            for match in found.matches
        ],
        complete=found.complete,
        after_path=found.next_path,
        after_offset=found.next_offset,
        after_inode=found.next_inode,
    )


def file_stats(found: shell_pb2.FileList) -> dict[str, m.FileStats]:
    """What is in a folder, by name."""
    return {entry.name: _stats(entry) for entry in found.files}


def _stats(entry: shell_pb2.FileEntry) -> m.FileStats:
    when = time.strftime("%b %d %H:%M", time.gmtime(entry.modified_s))
    text = f"{stat.filemode(entry.mode)} {entry.links} {entry.uid} {entry.gid} {entry.size} {when} {entry.name}"
    return m.FileStats(
        formatted_stat=text,
        is_dir=stat.S_ISDIR(entry.mode),
        path=entry.path,
        size=entry.size,
        modified=entry.modified_s,
    )
