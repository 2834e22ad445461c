"""The splits of a source that one task reads, from positions that it keeps."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.connectors.spi import Record, Source, SourceContext, SplitReader, StreamSplit
from heronpy.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from heronpy.state import SplitState

log = logging.getLogger(__name__)


def check_forgetting(source: Source, discover_every_s: float | None, forget_after_s: float | None) -> None:
    """Refuse to forget positions that never can be.

    Raises:
        ConfigError: they cannot.
    """
    if forget_after_s is None:
        return
    if type(source).is_gone is Source.is_gone:
        raise ConfigError(f"forget_after_s is for sources of files, not for {source!r}")
    if not discover_every_s or forget_after_s <= 0:
        raise ConfigError(
            f"forget_after_s={forget_after_s!r}: it must be more than 0, and needs discover_every_s to look for files"
        )


class SplitSet:
    """The splits of one task: read one after the other, or, of an interleaved source, all in turn."""

    def __init__(
        self,
        source: Source,
        positions: SplitState,
        context: SourceContext,
        *,
        discover_every_s: float | None,
        idle_after_s: float,
        forget_after_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Find the splits.

        Args:
            source: What is read.
            positions: Of its splits; read here, and forgotten.
            context: The task.
            discover_every_s: How often to look for new splits, and for more in those that had ended; None: never.
            idle_after_s: A split without records for so long is idle.
            forget_after_s: For how long a split must have been gone for its position to be forgotten; None: for ever.
            clock: In seconds.

        Raises:
            HeronError: the source cannot be read; one line.
        """
        self._source = source
        self._forget_after_s = forget_after_s
        self._waits = False
        """Whether there was none when they were looked for, and that has been said."""
        self._missing: dict[str, float] = {}
        """Splits with a position that were not found, since when."""
        self._every_s = discover_every_s
        self._idle_after_s = idle_after_s
        self._positions = positions
        self._context = dataclasses.replace(context, followed=discover_every_s is not None)
        self._clock = clock
        self._waiting: deque[tuple[str, StreamSplit]] = deque()
        self._open: deque[tuple[str, SplitReader]] = deque()
        self._ended: list[tuple[str, SplitReader]] = []
        """Those of an interleaved source that no committed checkpoint has at their end: they can be reported."""
        self._last_s: dict[str, float] = {}
        """When each split had its last record."""
        self._saved: dict[int, dict[str, Any]] = {}
        """By checkpoint that is not committed: where the open splits were."""
        self._final: dict[int, int] = {}
        """By the same: how many splits had ended, of those that are open to be reported."""
        self._discover()

    def read(self, limit: int) -> tuple[str | None, Sequence[Record], Any]:
        """The next records of some split, and the position behind them. No name: there is nothing now."""
        if self._every_s is not None and self._clock() >= self._discovered_s + self._every_s:
            self._discover()
        if self._source.interleaved:
            return self._read_in_turn(limit)
        if not self._open and self._waiting:
            self._open.append(self._opened())
        if not self._open:
            return None, (), None
        name, reader = self._open[0]
        records = reader.read(limit)
        position = reader.position
        if records:
            self._last_s[name] = self._clock()
        elif reader.ended:
            self._open.popleft()
            reader.close()
        else:
            self._open.rotate(-1)  # it may have more later, and others may have some now
            if self._waiting:
                self._open.appendleft(self._opened())
        return name, records, position

    def _read_in_turn(self, limit: int) -> tuple[str | None, Sequence[Record], Any]:
        while self._waiting:
            self._open.append(self._opened())
        for _ in range(len(self._open)):
            name, reader = self._open[0]
            self._open.rotate(-1)
            records = reader.read(limit)
            position = reader.position
            if reader.ended:
                self._ended.append(self._open.pop())
            if records:
                self._last_s[name] = self._clock()
            if records or position != self._positions.get(name):
                return name, records, position
        return None, (), None

    def _opened(self) -> tuple[str, SplitReader]:
        name, split = self._waiting.popleft()
        return name, split.open(self._positions.get(name), self._context)

    def prepare(self, checkpoint_id: int) -> None:
        """A snapshot is about to be taken: note down where the open splits are."""
        self._saved[checkpoint_id] = {name: reader.position for name, reader in (*self._open, *self._ended)}
        self._final[checkpoint_id] = len(self._ended)

    def commit(self, checkpoint_id: int) -> None:
        """A checkpoint is committed."""
        saved = self._saved.get(checkpoint_id, {})
        for name, reader in (*self._open, *self._ended):
            if name in saved:
                reader.committed(saved[name])
        over = self._final.get(checkpoint_id, 0)
        for _, reader in self._ended[:over]:
            reader.close()
        del self._ended[:over]
        self._final = {id: count - over for id, count in self._final.items() if id > checkpoint_id}
        self._saved = {id: positions for id, positions in self._saved.items() if id > checkpoint_id}

    def names(self) -> list[str]:
        """The splits that are open, or will be."""
        return [name for name, _ in (*self._open, *self._waiting)]

    @property
    def ended(self) -> bool:
        """Whether there will never be another record."""
        return self._every_s is None and not self._open and not self._waiting

    def idle(self) -> list[str]:
        """The splits that have had no record for a while: no watermark waits for them."""
        now_s = self._clock()
        return [name for name, last_s in self._last_s.items() if now_s - last_s >= self._idle_after_s]

    def close(self) -> None:
        """Close what is open."""
        for _, reader in (*self._open, *self._ended):
            reader.close()
        self._open.clear()
        self._ended.clear()
        self._waiting.clear()

    def _discover(self) -> None:
        self._discovered_s = self._clock()
        present = {name for name, _ in (*self._open, *self._ended, *self._waiting)}
        try:
            found = self._source.stream_splits()
        except NotFoundError as e:
            # Files that were read may all be gone, and more may come; another task may know some.
            if self._every_s is None or self._source.interleaved:
                raise
            if not self._waits:
                log.warning("%s; looking again every %g s", e, self._every_s)
            self._waits = True
            return
        self._waits = False
        for name, split in found.items():
            if self._positions.owns(name) and name not in present:
                self._waiting.append((name, split))
                self._last_s.setdefault(name, self._discovered_s)
        if self._forget_after_s is not None:
            self._forget(self._forget_after_s, present | found.keys())

    def _forget(self, after_s: float, there: Collection[str]) -> None:
        """Forget the positions of splits that have been gone for so long.

        Their time begins anew with the process, and where none is found it does not go on: a failing directory or store
        never lets it pass. A rollback brings a position back with the checkpoint that had it.
        """
        now_s = self._discovered_s
        missing = [name for name in self._positions if name not in there]
        self._missing = {name: self._missing.get(name, now_s) for name in missing}
        gone = [name for name, since_s in self._missing.items() if now_s - since_s >= after_s]
        for name in gone:
            self._missing[name] = now_s
            if self._source.is_gone(name):
                del self._missing[name], self._positions[name]
                self._last_s.pop(name, None)
