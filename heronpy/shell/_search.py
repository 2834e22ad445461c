"""Searching the log files of a container for a text, in bounded steps.

A search reads at most SEARCH_BYTES_MAX and takes at most about SEARCH_S; its reply says where the next one goes on. It
looks for text, not for a pattern: a pattern can take for ever, and would hold up the whole heron-shell.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator

from heronpy.config import KIB, MIB
from heronpy.errors import NotFoundError, UnavailableError, UsageError
from heronpy.host import EXECUTOR
from heronpy.proto import shell_pb2
from heronpy.shell._log_files import listing, open_log

SEARCH_BYTES_MAX = 256 * MIB
SEARCH_S = 3.0
MATCHES_MAX = 1000
LINE_BYTES_MAX = 4 * KIB
"""Of a longer line, its beginning is returned."""
TEXT_BYTES_MAX = 1 * KIB
_REPLY_BYTES_MAX = 1 * MIB
_BLOCK_BYTES = 256 * KIB
_LOG_FILE = re.compile(r"(?P<process>.+)\.(?P<suffix>log|out)(?:\.(?P<number>[0-9]{1,9}))?")


def log_order(entry: shell_pb2.FileEntry) -> tuple[str, str, int] | None:
    """By which the log files of a container are read: by process, then the oldest first. None: not a log file."""
    found = _LOG_FILE.fullmatch(entry.name)
    if found is None or not stat.S_ISREG(entry.mode):
        return None
    return found["process"], found["suffix"], -int(found["number"] or 0)


def process_of(name: str, container: int) -> str:
    """The id of the process that writes the log file of this name; empty if it is not a log file."""
    found = _LOG_FILE.fullmatch(name)
    if found is None:
        return ""
    return f"{EXECUTOR}-{container}" if found["process"] == EXECUTOR else found["process"]


def search(logs: int, container: int, request: shell_pb2.SearchRequest) -> shell_pb2.SearchReply:
    """The lines of log files that contain a text, oldest first of each process.

    Args:
        logs: What `folder` yields.
        container: The number of the container.
        request: What is looked for, and where an earlier search has ended.

    Raises:
        UsageError: no text, or one that is too long.
        UnavailableError: files cannot be read now.
    """
    text = request.text.encode()
    if not text or len(text) > TEXT_BYTES_MAX or b"\n" in text:
        raise UsageError(f"the text to search for must be one line of 1 to {TEXT_BYTES_MAX} bytes")
    search = _Search(request, text.lower() if request.ignore_case else text)
    entries = [(order, entry) for entry in listing(logs).files if (order := log_order(entry)) is not None]
    # Where the earlier search has ended: in that file, which may have another name now; if it has gone, at its name.
    after = next((order for order, entry in entries if request.after_inode == entry.inode), None)
    offset = request.after_offset if after is not None else 0
    if after is None:
        after = next((order for order, entry in entries if request.after_path == entry.name), None)
    for order, entry in sorted(entries, key=lambda pair: pair[0]):
        if after is not None and order < after:
            continue
        if request.process not in ("", process_of(entry.name, container)) or entry.modified_s < request.since_s:
            continue
        if not search.file(logs, entry, offset if order == after else 0):
            return search.reply
    search.reply.complete = True
    return search.reply


class _Search:
    """One call: counts what it has read and found."""

    def __init__(self, request: shell_pb2.SearchRequest, text: bytes) -> None:
        self.reply = shell_pb2.SearchReply()
        self._text = text
        self._ignore_case = request.ignore_case
        self._left = min(request.matches_max or MATCHES_MAX, MATCHES_MAX)
        self._reply_bytes = 0
        self._deadline_s = time.monotonic() + SEARCH_S

    def file(self, logs: int, entry: shell_pb2.FileEntry, offset: int) -> bool:
        """Search one file from an offset. False: the reply is full, or the time is up."""
        try:
            fd = open_log(logs, entry.name)
        except NotFoundError:  # rotated or removed meanwhile
            return True
        try:
            for at, lines in self._blocks(fd, max(0, offset)):
                if not self._lines(entry, at, lines):
                    return False
                self.reply.searched_bytes += len(lines)
                if self.reply.searched_bytes >= SEARCH_BYTES_MAX or time.monotonic() > self._deadline_s:
                    self._go_on(entry, at + len(lines))
                    return False
        except OSError as e:
            raise UnavailableError(f"{entry.path} cannot be read now: {e.strerror}") from e
        finally:
            os.close(fd)
        return True

    def _blocks(self, fd: int, offset: int) -> Iterator[tuple[int, bytes]]:
        """The file in blocks of whole lines, as long as it was at the beginning; a very long line in several."""
        size = os.fstat(fd).st_size
        while offset < size:
            try:
                offset = os.lseek(fd, offset, os.SEEK_DATA)  # a sparse file is as long as its data
            except OSError as e:
                if e.errno == errno.ENXIO:
                    return
                raise
            block = os.pread(fd, min(_BLOCK_BYTES, size - offset), offset)
            if not block:
                return
            whole = block.rfind(b"\n") + 1
            last = offset + len(block) >= size
            if whole and not last:
                block = block[:whole]
            yield offset, block
            # What is cut in two is found in the second part.
            offset += len(block) if whole or last else len(block) - len(self._text) + 1

    def _lines(self, entry: shell_pb2.FileEntry, at: int, block: bytes) -> bool:
        haystack = block.lower() if self._ignore_case else block
        found = haystack.find(self._text)
        while found >= 0:
            begin = block.rfind(b"\n", 0, found) + 1
            end = block.find(b"\n", found)
            end = len(block) if end < 0 else end
            if not self._left or self._reply_bytes > _REPLY_BYTES_MAX:
                self._go_on(entry, at + begin)
                return False
            line = block[begin : min(end, begin + LINE_BYTES_MAX)]
            self.reply.matches.add(path=entry.path, offset=at + begin, line=line)
            self._left -= 1
            self._reply_bytes += len(line) + len(entry.path) + 16
            found = haystack.find(self._text, end)
        return True

    def _go_on(self, entry: shell_pb2.FileEntry, offset: int) -> None:
        self.reply.next_path, self.reply.next_offset, self.reply.next_inode = entry.name, offset, entry.inode
