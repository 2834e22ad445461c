"""The process that starts and supervises the other processes of one container."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from heronpy.errors import AlreadyExistsError
from heronpy.executor._children import Children
from heronpy.executor._commands import CONTAINER_ENV, TOPOLOGY_ENV, Command, process_table
from heronpy.executor._files import forget_pid, write_pid
from heronpy.executor._host import HostProcess, sweep
from heronpy.executor._supervision import (
    Event,
    Exited,
    Kill,
    Phase,
    Start,
    Started,
    StartFailed,
    StopAsked,
    Supervision,
    Terminate,
    Ticked,
    Wanted,
)
from heronpy.plan import PackingPlan
from heronpy.proto import loglevels_pb2, plan_pb2
from heronpy.runtime import Launch, LevelSwitch
from heronpy.statemgr import Kind, StateManager, Watch, open_statemgr

log = logging.getLogger(__name__)

POLL_S = 0.05
"""How soon a death is noticed. One waitid per child and poll; pidfd would need a newer kernel than some
clusters have."""
PID_FILE = "executor"

Table = Callable[[Launch, int, PackingPlan], Sequence[Command]]


class Executor:
    """Starts the processes of one container and keeps them running until cancelled.

    Cancelled, it ends them in order; a process that takes longer than the stop timeout is killed with all of its
    process group, and at last whatever user code left running in the container is killed too. `owner` is for
    clusters that must not outlive a test: the executor ends by itself, in the same order, when that process is gone.
    """

    def __init__(
        self,
        launch: Launch,
        container: int,
        *,
        table: Table = process_table,
        owner: HostProcess | None = None,
    ) -> None:
        self.started = asyncio.Event()
        self._launch = launch
        self._container = container
        self._table = table
        self._owner = owner
        self._dir = launch.container_dir(container)
        self._supervision = Supervision(launch.config.executor)
        self._level = LevelSwitch(process=f"executor-{container}", component="__executor__")
        self._children = Children(launch, container)
        self._commands: dict[str, Command] = {}

    async def run(self) -> None:
        """Serve until cancelled or until the owner is gone. On return every process of the container has ended.

        Raises:
            AlreadyExistsError: another executor runs this container.
            StateError: the state manager cannot be reached.
        """
        loop = asyncio.get_running_loop()
        watches: list[Watch] = []
        with self._only_one():
            self._sweep("left by an earlier executor")
            self._launch.socket_dir(self._container)
            statemgr = await asyncio.to_thread(open_statemgr, self._launch.statemgr)
            try:
                for kind, changed in ((Kind.LOGLEVELS, self._on_levels), (Kind.PACKINGPLANS, self._on_plan)):
                    callback = functools.partial(_call_soon, loop, changed)
                    watches.append(await asyncio.to_thread(statemgr.watch, kind, self._launch.topology, callback))
                await self._supervise()
            finally:
                for watch in watches:
                    watch.cancel()
                await self._end(statemgr)

    async def _end(self, statemgr: StateManager) -> None:
        self._sweep("left running by user code")
        for id in self._commands:
            self._children.forget(id)
        await asyncio.to_thread(statemgr.close)

    async def _supervise(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        while not self._supervision.finished:
            try:
                await asyncio.sleep(POLL_S)
            except asyncio.CancelledError as e:
                # Cancelled again and again it still ends in order: that takes at most a stop timeout per stage.
                cancelled = e
                self._apply(StopAsked(_now_ms()))
            if self._owner is not None and not self._supervision.stopping and not self._owner.alive:
                log.info("the owner, pid %d, is gone", self._owner.pid)
                self._apply(StopAsked(_now_ms()))
            self._reap()
            self._apply(Ticked(_now_ms()))
        if cancelled is not None:
            raise cancelled

    def _on_plan(self, value: bytes | None) -> None:
        if value is None:
            # The topology is being killed; whoever does that also ends this executor.
            log.info("the packing plan is gone")
            return
        plan = PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(value))
        table = {command.id: command for command in self._table(self._launch, self._container, plan)}
        if not table:
            log.warning("the packing plan has no container %d", self._container)
        self._commands |= table
        self._apply(Wanted({id: command.stage for id, command in table.items()}, _now_ms()))
        self.started.set()

    def _on_levels(self, value: bytes | None) -> None:
        self._level.follow(loglevels_pb2.LogLevels.FromString(value or b""))

    def _reap(self) -> None:
        for id, pid, code in self._children.dead():
            expected = self._supervision.phases.get(id) is Phase.ENDING
            self._children.report(id, pid, code, expected=expected)
            self._apply(Exited(id, pid, _now_ms()))
            if id not in self._supervision.phases:
                self._children.forget(id)

    def _apply(self, event: Event) -> None:
        """Carry out what an event entails, and what that entails, until nothing is left to do."""
        effects = self._supervision.on(event)
        while effects:
            effect = effects.pop(0)
            match effect:
                case Start(id):
                    pid = self._children.start(self._commands[id])
                    done = StartFailed(id, _now_ms()) if pid is None else Started(id, pid, _now_ms())
                    effects += self._supervision.on(done)
                case Terminate(_, pid):
                    self._children.terminate(pid)
                case Kill(id, pid):
                    log.warning("%s did not end in time: killed", id)
                    self._children.kill(pid)
                case _:
                    assert_never(effect)

    def _sweep(self, whose: str) -> None:
        killed = sweep({TOPOLOGY_ENV: self._launch.topology_id, CONTAINER_ENV: str(self._container)})
        if killed:
            log.warning("%d processes %s were killed", killed, whose)

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[None]:
        """Hold the container's lock: two executors would run every task twice and sweep each other's processes."""
        self._dir.mkdir(parents=True, exist_ok=True)
        with (self._dir / "executor.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyExistsError(f"another executor runs container {self._container} of {self._dir}") from None
            me = HostProcess.of(os.getpid())
            assert me is not None
            write_pid(self._dir, PID_FILE, me)
            try:
                yield
            finally:
                if self._supervision.finished:  # else the record stays, and the next executor counts as a restart
                    forget_pid(self._dir, PID_FILE)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[bytes | None], None], value: bytes | None) -> None:
    # The state manager's thread may still report a change while this process ends.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, value)


def _now_ms() -> float:
    return time.monotonic() * 1000
