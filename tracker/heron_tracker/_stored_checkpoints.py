"""The checkpoints that topologies have stored, for a Tracker that must not wait for their storages.

A storage may hang for ever, as a network file system does. So it is read in a daemon thread, by one at a time for each
topology; who asks meanwhile, or after a while, gets what was read before and why there is nothing newer. Which
storage a topology has is said by its launch file alone, see `_trust.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from heron_tracker._topology import Topology
from heron_tracker._trust import trusted_launch
from heronpy import submit
from heronpy.errors import HeronError, UnavailableError
from heronpy.redaction import redacted
from heronpy.submit import StoredCheckpoint

AGE_S = 5.0
"""What was read is not read again sooner."""
TIMEOUT_S = 3.0
"""So long the one who begins to read waits."""
READS_MAX = 8
"""Most threads at a time; those that hang count."""
NEWEST = 50
"""So many checkpoints of a topology are read."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known of the stored checkpoints of a topology."""

    checkpoints: Sequence[StoredCheckpoint] = ()
    """The newest last; the last ones that could be read."""
    location: str | None = None
    """URL of the storage, without its password."""
    start_from: str | None = None
    """URL of the storage whose checkpoint the topology began with, if it did."""
    start_checkpoint: int = 0
    problem: str = ""
    """Why that is not what is there now; empty: it is."""


@dataclass(slots=True)
class _Entry:
    known: Stored = field(default_factory=Stored)
    read_s: float = float("-inf")
    began_s: float | None = None
    """Of the thread that reads; None: there is none."""
    done: asyncio.Event = field(default_factory=asyncio.Event)


Read = Callable[[Topology, Sequence[StoredCheckpoint]], Stored]


def read_stored(topology: Topology, known: Sequence[StoredCheckpoint]) -> Stored:
    """Read them. Raises HeronError."""
    launch = trusted_launch(topology)
    if not launch.checkpoints:
        raise UnavailableError("its launch file names no storage")
    return Stored(
        submit.checkpoints(launch, newest=NEWEST, known=known),
        redacted(launch.checkpoints),
        redacted(launch.start_from) if launch.start_from else None,
        launch.start_checkpoint,
    )


class StoredCheckpoints:
    """The stored checkpoints of all topologies, each read when it is asked for."""

    def __init__(self, read: Read = read_stored) -> None:
        self._read = read
        self._entries: dict[str, _Entry] = {}
        self._reads = 0

    async def of(self, topology: Topology) -> Stored:
        """What is stored, or the last that is known with the reason. Returns within TIMEOUT_S."""
        entry = self._entries.setdefault(topology.id, _Entry())
        now_s = time.monotonic()
        if entry.began_s is not None and now_s - entry.began_s > TIMEOUT_S:
            return _silent(entry, now_s)
        if entry.began_s is None:
            if now_s - entry.read_s <= AGE_S:
                return entry.known
            if self._reads >= READS_MAX:
                return replace(entry.known, problem="too many storages do not answer")
            self._begin(topology, entry)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                await entry.done.wait()
        return entry.known if entry.began_s is None else _silent(entry, time.monotonic())

    def keep(self, topology_ids: Iterable[str]) -> None:
        """Forget all topologies but these."""
        for id in self._entries.keys() - set(topology_ids):
            del self._entries[id]

    def _begin(self, topology: Topology, entry: _Entry) -> None:
        loop = asyncio.get_running_loop()
        entry.began_s = time.monotonic()
        entry.done.clear()
        self._reads += 1
        before = entry.known

        def work() -> None:
            try:
                found = self._read(topology, before.checkpoints)
            except HeronError as e:
                found = replace(before, problem=redacted(str(e)))
            except Exception as e:  # of the client of a storage, or of a damaged value: to the caller
                found = replace(before, problem=redacted(f"{type(e).__name__}: {e}"))
            with contextlib.suppress(RuntimeError):  # the loop is closed: the Tracker ends
                loop.call_soon_threadsafe(self._ended, entry, found)

        threading.Thread(target=work, name="tracker-checkpoints", daemon=True).start()

    def _ended(self, entry: _Entry, found: Stored) -> None:
        self._reads -= 1
        entry.known, entry.read_s, entry.began_s = found, time.monotonic(), None
        entry.done.set()


def _silent(entry: _Entry, now_s: float) -> Stored:
    assert entry.began_s is not None
    return replace(entry.known, problem=f"it has not answered for {now_s - entry.began_s:.0f} s")
