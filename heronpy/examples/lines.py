"""A spout that reads text files line by line and loses none.

Every line is emitted with a message id and kept until it is acked; a failed one is emitted again. When all lines of
this task are acked, the task says so on the stream `end`. A bolt that reads `end` with Grouping.ALL therefore knows,
when every spout task has reported that everything emitted has been processed all the way down.

Each file is divided among the spout's tasks by byte ranges; a line belongs to the task in whose range its first byte
is, so no task has to know what the others read.
"""

from __future__ import annotations

import itertools
import string
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from heronpy.api import Bolt, Spout, Stream, TopologyContext, Tuple

LINE_BYTES_MAX = 1024 * 1024
"""A longer line is emitted in pieces, cut between words (a longer word is cut, too): memory stays bounded."""

INPUT = "lines.input"
"""Configuration key: the files to read, a list of absolute paths."""

END = "end"
"""The stream that ends the input, and the id of its tuple."""

_LETTERS = string.ascii_letters.encode()


class LineSpout(Spout):
    """Emits every line of the files in `lines.input` as bytes, without its newline; at least once.

    `end` carries the id of this task, the number of tasks, and when this task began (seconds since 1970).
    """

    outputs = [Stream(fields=["line"]), Stream(fields=["task", "tasks", "began_s"], name=END)]  # noqa: RUF012  # Heron's way

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._task = context.get_task_id()
        self._tasks = len(context.get_component_tasks(context.get_component_id()) or ())
        self._lines = read_lines([Path(p) for p in config[INPUT]], context.get_this_task_index(), self._tasks)
        self._ids = itertools.count()
        self._pending: dict[int, bytes] = {}  # as many as topology.max.spout.pending
        self._failed: deque[int] = deque()
        self._end_sent = False
        self._began_s = time.time()

    def next_tuple(self) -> None:
        if self._failed:
            tup_id = self._failed.popleft()
            if tup_id in self._pending:
                self.emit((self._pending[tup_id],), tup_id=tup_id)
            return
        line = next(self._lines, None)
        if line is not None:
            tup_id = next(self._ids)
            self._pending[tup_id] = line
            self.emit((line,), tup_id=tup_id)
        elif not self._pending and not self._end_sent:
            self._end_sent = True
            self.emit((self._task, self._tasks, self._began_s), tup_id=END, stream=END)

    def ack(self, tup_id: Any) -> None:
        if tup_id == END:
            self.logger.info("the input is finished: every line was processed")
        else:
            self._pending.pop(tup_id, None)

    def fail(self, tup_id: Any) -> None:
        if tup_id == END:
            self._end_sent = False
        else:
            self._failed.append(tup_id)


class InputEnd:
    """What a bolt knows about the end of its input: which tasks of a LineSpout are done.

    The tuples of `end` stay unacked until `ack_with`: who dies before receives them again after the message timeout.
    """

    def __init__(self) -> None:
        self._began_s: dict[int, float] = {}
        self._unacked: dict[int, Tuple] = {}

    @property
    def began_s(self) -> float:
        """When the first spout task began (seconds since 1970)."""
        return min(self._began_s.values())

    def reached(self, tup: Tuple) -> bool:
        """Note a tuple of `end`. True if every spout task has now sent one."""
        task, tasks, began_s = tup.values
        self._began_s[task] = began_s
        self._unacked[task] = tup  # a replayed one takes the place of the one that timed out
        return len(self._began_s) == int(tasks)

    def ack_with(self, bolt: Bolt) -> None:
        """Ack what was noted; once each, because an ack that is given twice is none."""
        for tup in self._unacked.values():
            bolt.ack(tup)
        self._unacked.clear()


def read_lines(paths: Sequence[Path], part: int, parts: int) -> Iterator[bytes]:
    """The lines that start in byte range `part` of `parts` of each file, lazily and without their newlines.

    All parts together give every line of every file exactly once.
    """
    for path in paths:
        size = path.stat().st_size
        yield from _range(path, size * part // parts, size * (part + 1) // parts)


def _range(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as f:
        if start > 0:
            # The line that contains the byte before the range is somebody else's.
            f.seek(start - 1)
            for _ in _line(f):
                pass
        while f.tell() < end:
            yield from _line(f)


def _line(f: BinaryIO) -> Iterator[bytes]:
    """The next line; in pieces if it is longer than LINE_BYTES_MAX."""
    piece = b""
    while True:
        read = f.readline(LINE_BYTES_MAX - len(piece))
        piece += read
        if piece.endswith(b"\n"):
            yield piece[:-1]
            return
        if not read:  # the file ends without a newline
            if piece:
                yield piece
            return
        if len(piece) == LINE_BYTES_MAX:
            whole_words = piece.rstrip(_LETTERS) or piece
            yield whole_words
            piece = piece[len(whole_words) :]
