"""Log levels that are changed at run time: kept in the state manager, taken back when their time is over.

The Topology Master is the only one that writes them. It notifies no process: every Metrics Manager and executor
follows the node, so levels also reach what starts while there is no Topology Master.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from heronpy.config import takes_checkpoints
from heronpy.errors import NotFoundError, StateError, UsageError, nearest
from heronpy.plan import LogicalPlan, PackingPlan
from heronpy.proto import loglevels_pb2, tmaster_pb2
from heronpy.runtime import ENGINE, LEVELS
from heronpy.statemgr import Kind, StateManager, records

log = logging.getLogger(__name__)

RETRY_S = 1.0
KINDS = ("__stmgr__", "__metricsmgr__", "__executor__", "__tmaster__")
CHECKPOINTS_KIND = "__ckptmgr__"
FOR_MAX_S = 10 * 365 * 86400


def targets(logical: LogicalPlan, packing: PackingPlan) -> list[str]:
    """Everything that can have a level of its own."""
    containers = [0, *(c.id for c in packing.containers)]
    checkpoints = []
    if takes_checkpoints(logical.config):
        checkpoints = [CHECKPOINTS_KIND, *(f"ckptmgr-{n}" for n in containers)]
    return [
        *logical.components,
        ENGINE,
        *KINDS,
        *checkpoints,
        "tmaster",
        *(f"{kind}-{n}" for kind in ("executor", "metricsmgr") for n in containers),
        *(c.stmgr_id for c in packing.containers),
        *(i.instance_id(c.id) for c in packing.containers for i in c.instances),
    ]


def check(request: tmaster_pb2.LogLevelRequest, known: list[str]) -> None:
    """Refuse a request that makes no sense.

    Raises:
        NotFoundError: no such target; names the nearest.
        UsageError: no such level, or no such time.
    """
    if request.target not in known:
        raise NotFoundError(f"no component or process {request.target!r}{nearest(request.target, known)}")
    if request.level and request.level not in LEVELS:
        raise UsageError(f"no log level {request.level!r}: there are {', '.join(LEVELS)}")
    if not 0 <= request.for_s <= FOR_MAX_S:
        raise UsageError(f"a log level cannot hold for {request.for_s} s")


def changed(
    levels: loglevels_pb2.LogLevels, request: tmaster_pb2.LogLevelRequest, now_ms: int
) -> loglevels_pb2.LogLevels:
    """The levels after a request."""
    others = [level for level in levels.levels if level.target != request.target]
    if request.level:
        until_ms = now_ms + request.for_s * 1000 if request.for_s else 0
        others.append(loglevels_pb2.LogLevel(target=request.target, level=request.level, until_ms=until_ms))
    others.sort(key=lambda level: level.target)
    return loglevels_pb2.LogLevels(levels=others)


def in_force(levels: loglevels_pb2.LogLevels, now_ms: int) -> loglevels_pb2.LogLevels:
    """Without those whose time is over."""
    return loglevels_pb2.LogLevels(levels=[x for x in levels.levels if not x.until_ms or x.until_ms > now_ms])


class LogLevelKeeper:
    """Writes the levels of one topology."""

    def __init__(
        self, state: StateManager, topology: str, write: Callable[[Kind, bytes], Coroutine[Any, Any, None]]
    ) -> None:
        """Begin with what the state manager has.

        Args:
            state: What is read.
            topology: Whose levels.
            write: Writes a node of the topology, unless another Topology Master is the leader; raises StateError.
        """
        self._state = state
        self._topology = topology
        self._write_node = write
        self._levels: loglevels_pb2.LogLevels | None = None
        self._changing = asyncio.Lock()
        self._changed = asyncio.Event()

    async def get(self) -> loglevels_pb2.LogLevels:
        """Those in force.

        Raises:
            StateError: they cannot be read.
        """
        if self._levels is None:
            raw = await asyncio.to_thread(self._state.get, Kind.LOGLEVELS, self._topology)
            unchanged = loglevels_pb2.LogLevels()
            found = records.readable(records.log_levels, self._topology, raw, before=unchanged)
            self._levels = self._levels or found
        return in_force(self._levels, _now_ms())

    async def set(self, request: tmaster_pb2.LogLevelRequest) -> loglevels_pb2.LogLevels:
        """Do what a request that was checked asks for. Durable on return.

        Raises:
            StateError: nothing was changed, as far as is known.
        """
        async with self._changing:
            levels = changed(await self.get(), request, _now_ms())
            await self._write(levels)
        how_long = f" for {request.for_s} s" if request.for_s and request.level else ""
        what = f"is {request.level}{how_long}" if request.level else "is the configured one again"
        _audit("the log level of %s %s: set by %s", request.target, what, request.user or "somebody")
        return levels

    async def run(self) -> None:
        """Take back what is over, until cancelled."""
        while True:
            try:
                pause_s = await self._expire()
            except StateError as e:
                log.warning("log levels are not taken back yet: %s", e)
                pause_s = RETRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            self._changed.clear()

    async def _expire(self) -> float | None:
        """Take back what is over; how long until the next is, None if none will be."""
        async with self._changing:
            left = await self.get()
            assert self._levels is not None
            if left != self._levels:
                over = [level for level in self._levels.levels if level not in left.levels]
                await self._write(left)
                for level in over:
                    _audit("the log level of %s is the configured one again: %s is over", level.target, level.level)
        times = [level.until_ms for level in left.levels if level.until_ms]
        return max(0.0, (min(times) - _now_ms()) / 1000) if times else None

    async def _write(self, levels: loglevels_pb2.LogLevels) -> None:
        await self._write_node(Kind.LOGLEVELS, levels.SerializeToString())
        self._levels = levels
        self._changed.set()


def _audit(message: str, *args: object) -> None:
    # Who changed what must be in the log even where the Topology Master's own level was raised.
    log.log(max(logging.WARNING, logging.getLogger().level), message, *args)


def _now_ms() -> int:
    return int(time.time() * 1000)
