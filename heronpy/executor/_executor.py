"""The process that starts and supervises the other processes of one container."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from heronpy.errors import AlreadyExistsError, StateError
from heronpy.executor._beside import BeforeEnd, Beside, Codes
from heronpy.executor._children import Children
from heronpy.executor._commands import INSTANCE_STAGE, Command, process_table
from heronpy.executor._incarnation import (
    ReplacedError,
    Tenure,
    hold_incarnation,
    restore_record,
    take_incarnation,
)
from heronpy.executor._service import ServiceSupervisor
from heronpy.executor._stored_logs import store_logs
from heronpy.host import (
    CONTAINER_ENV,
    DIRECTORY_ENV,
    EXECUTOR,
    TOPOLOGY_ENV,
    DirectoryWatch,
    HostProcess,
    sweep,
)
from heronpy.limits import Limiter, remove_cgroups
from heronpy.plan import PackingPlan
from heronpy.proto import loglevels_pb2
from heronpy.runtime import Launch, LevelSwitch
from heronpy.statemgr import Kind, StateManager, Watch, container_node, on_loop, open_statemgr, records
from heronpy.supervision import (
    DumpStacks,
    Event,
    Exited,
    HangDetector,
    Hung,
    Kill,
    Phase,
    RestartRequested,
    Start,
    Started,
    StartFailed,
    StopRequested,
    Supervision,
    Terminate,
    Ticked,
    Wanted,
)

log = logging.getLogger(__name__)

POLL_S = 0.05
"""How often due work is checked for, while there is some: a start, or the end of a timeout."""
PREPARING_POLL_S = 0.01
"""The same while only a fork server is waited for."""
IDLE_POLL_S = 0.5
"""The same while all processes run. A death is noticed at once: the kernel sends SIGCHLD."""
LOOK_S = 1.0
"""How often heartbeats are looked at."""
_NO_PLAN = PackingPlan("", ())

Table = Callable[[Launch, int, PackingPlan], Sequence[Command]]


class Executor:
    """Starts the processes of one container and keeps them running until cancelled.

    Cancelled, it ends them gracefully; a process that takes longer than the stop timeout is killed with all of its
    process group, and at last whatever user code left running in the container is killed too. `owner` is for
    clusters that must not outlive a test: the executor ends by itself, in the same order, when that process is gone. So
    it does when the topology's directory is gone, or says that the topology was killed, and when the state manager has
    a newer incarnation of the container, or another submission of the topology.
    """

    def __init__(
        self,
        launch: Launch,
        container: int,
        *,
        table: Table = process_table,
        owner: HostProcess | None = None,
        supervises_service: bool = False,
        incarnation: int = 0,
        beside: Beside | None = None,
        codes: Codes | None = None,
        before_end: BeforeEnd | None = None,
    ) -> None:
        """Make the executor of a container.

        Args:
            launch: Of the topology.
            container: Its number.
            table: Says which processes the container has.
            owner: The container ends when this process is gone.
            supervises_service: Start the scheduler service again when it is dead or hung.
            incarnation: That was taken for this start already; 0: take one.
            beside: What else is to be looked after.
            codes: Fetches the user's code; None: it is there.
            before_end: What is done first when it is cancelled; cancelled again, it does not wait for that.
        """
        self.started = asyncio.Event()
        self._launch = launch
        self._container = container
        self._table = table
        self._owner = owner
        self._dir = launch.container_dir(container)
        self._supervision = Supervision(launch.config.executor)
        self._level = LevelSwitch(process=f"executor-{container}", component="__executor__")
        self._levels = loglevels_pb2.LogLevels()
        self._children = Children(launch, container)
        self._commands: dict[str, Command] = {}
        self._plan: PackingPlan | None = None
        self._next: PackingPlan | None = None
        """What is being prepared: its processes are started, and those of the plan go on."""
        self._wanted: dict[str, int] | None = None
        """What is to run, with its stage, and cannot be started yet; None: it was."""
        self._changed: set[str] = set()
        """What of it is to run with another command than before."""
        self._hangs = HangDetector(launch.config.executor.heartbeat_timeout_ms, LOOK_S * 1000)
        self._hung: dict[int, str] = {}
        """Why a process is taken for hung, by its pid."""
        self._looping: set[str] = set()
        """What is known to be in a crash loop."""
        self._limiter = Limiter(launch, container)
        self._look_at_s = 0.0
        self._incarnation, self._beside, self._codes = incarnation, beside, codes
        self._before_end, self._is_before_end = before_end, False
        self._restoring: asyncio.Task[None] | None = None
        # Set once the state manager is open.
        self._statemgr: StateManager
        self._tenure: Tenure
        self._directory = DirectoryWatch(launch.dir)
        self._service: ServiceSupervisor | None = None
        if supervises_service:
            self._service = ServiceSupervisor(launch, container, owner=owner, interval_ms=LOOK_S * 1000)

    async def run(self) -> None:
        """Serve until cancelled or until the owner is gone. On return every process of the container has ended.

        Raises:
            AlreadyExistsError: another executor runs this container.
            StateError: the state manager cannot be reached.
            UnavailableError: instances cannot be limited as the configuration wants it.
        """
        watches: list[Watch] = []
        with self._only_one():
            self._sweep("left by an earlier executor")
            remove_cgroups(self._dir)
            self._limiter.open()
            self._launch.socket_dir(self._container)
            statemgr = await asyncio.to_thread(open_statemgr, self._launch.statemgr, parents=False)
            topology = self._launch.topology
            try:
                await self._take_incarnation(statemgr)
                followed: list[tuple[Kind, str, Callable[[bytes | None], None]]] = []
                if not self._launch.shares_files:  # else the directory says that the topology was killed
                    followed.append((Kind.TOMBSTONES, self._launch.topology_id, self._tenure.tombstone_changed))
                for kind, node, changed in (
                    *followed,
                    (Kind.CONTAINERS, container_node(topology, self._container), self._tenure.record_changed),
                    (Kind.EXECUTIONSTATE, topology, self._on_execution),
                    (Kind.LOGLEVELS, topology, self._on_levels),
                    (Kind.NEXTPACKINGPLANS, topology, self._on_next),
                    (Kind.PACKINGPLANS, topology, self._on_plan),
                ):
                    watches.append(await asyncio.to_thread(statemgr.watch, kind, node, on_loop(changed)))
                await self._supervise()
            except ReplacedError as e:
                log.info("%s: the container ends", e)
            finally:
                for watch in watches:
                    watch.cancel()
                await self._end(statemgr)

    async def _take_incarnation(self, statemgr: StateManager) -> None:
        self._statemgr = statemgr
        if self._incarnation:
            taken = asyncio.to_thread(hold_incarnation, statemgr, self._launch, self._container, self._incarnation)
        else:
            taken = asyncio.to_thread(take_incarnation, statemgr, self._launch, self._container)
        record = await taken
        log.info("container %d, incarnation %d", self._container, record.incarnation)
        self._children.incarnation = record.incarnation
        self._tenure = Tenure(self._launch, record, shares_files=self._launch.shares_files)

    def _on_execution(self, value: bytes | None) -> None:
        self._tenure.execution_changed(value, time.monotonic())

    def _restore_record(self) -> None:
        """Write the container's record again if the state manager has lost it; what fails is tried again."""
        if self._tenure.lost and (self._restoring is None or self._restoring.done()):
            record = self._tenure.record

            async def restore() -> None:
                try:
                    await asyncio.to_thread(restore_record, self._statemgr, self._launch, record)
                except StateError as e:
                    log.warning("the record of container %d is not written again yet: %s", self._container, e)

            self._restoring = asyncio.create_task(restore(), name="executor/record")

    async def _end(self, statemgr: StateManager) -> None:
        if self._restoring is not None:
            await self._restoring
        for each in (self._codes, self._before_end):
            if each is not None:
                each.close()
        self._children.close()
        self._sweep("left running by user code")
        self._limiter.close()
        remove_cgroups(self._dir)
        for id in self._commands:
            self._children.pids.retire(id)
        await asyncio.to_thread(store_logs, self._launch, self._container, self._children.incarnation)
        await asyncio.to_thread(statemgr.close)

    async def _supervise(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        died = asyncio.Event()
        # Not by the loop, whose SIGCHLD is for children of its own. This runs in it all the same: the loop is woken up.
        signal.signal(signal.SIGCHLD, lambda *_: died.set())
        while not self._supervision.finished:
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s()):
                        await died.wait()
                died.clear()
            except asyncio.CancelledError as e:
                # Cancelled again and again it still ends gracefully: that takes at most a stop timeout per stage.
                if cancelled is None and self._before_end is not None and not self._supervision.stopping:
                    self._is_before_end = True
                    self._before_end.begin(_now_ms())
                else:
                    self._apply(StopRequested(_now_ms()))
                cancelled = e
            if self._is_before_end and self._before_end is not None and self._before_end.over(_now_ms()):
                self._is_before_end = False
                self._apply(StopRequested(_now_ms()))
            self._apply_wanted()
            self._reap()
            self._apply(Ticked(_now_ms()))
            if time.monotonic() >= self._look_at_s:
                self._look_at_s = time.monotonic() + LOOK_S
                self._look()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if cancelled is not None:
            raise cancelled

    def _pause_s(self) -> float:
        if self._wanted is not None:
            return PREPARING_POLL_S
        return IDLE_POLL_S if self._supervision.all_run and not self._is_before_end else POLL_S

    def _look(self) -> None:
        """What is done once a second."""
        self._find_hung()
        self._kill_overruns()
        self._children.pids.retry()
        if self._supervision.stopping:
            return
        if why := self._at_its_end():
            log.info("%s: the container ends", why)
            self._apply(StopRequested(_now_ms()))
            return
        self._restore_record()
        if self._service is not None:
            self._service.tick(_now_ms())
        if self._beside is not None:
            self._beside.tick(_now_ms())
        if self._codes is not None and self._plan is not None:
            self._codes.follow(self._plan, settled=self._supervision.all_run)
            if self._codes.tick(_now_ms()):
                self._follow_plans(self._plan)

    def _at_its_end(self) -> str:
        """Why the container has to end, without anybody's asking; empty if it has not to."""
        if self._owner is not None and not self._owner.alive:
            return f"the owner, pid {self._owner.pid}, is gone"
        return self._directory.ended(time.monotonic()) or self._tenure.ended(time.monotonic())

    def _on_plan(self, value: bytes | None) -> None:
        if value is None:
            # Lost, or the topology is being killed; the kill also ends this executor.
            log.info("the packing plan is gone")
        else:
            self._plan = records.readable(records.packing_plan, self._launch.topology, value, before=self._plan)
        plan = self._plan
        if plan is None and self._container == 0:
            plan = _NO_PLAN  # by any it has the same processes, and the Topology Master a copy of what is lost
        if plan is not None:
            self._follow_plans(plan)
            self.started.set()

    def _on_next(self, value: bytes | None) -> None:
        self._next = records.readable(records.next_packing_plan, self._launch.topology, value, before=self._next)
        if self._plan is not None:
            self._follow_plans(self._plan)

    def _follow_plans(self, plan: PackingPlan) -> None:
        if self._next is not None:
            plan = plan.joined(self._next)
        table = {command.id: command for command in self._table(self._launch, self._container, plan)}
        if self._codes is not None and not self._codes.has(plan):  # what runs is of no use, either: it has other code
            table = {id: command for id, command in table.items() if command.stage != INSTANCE_STAGE}
        if not table:
            log.warning("the packing plan has no container %d", self._container)
        changed = {id for id, command in table.items() if self._commands.get(id, command) != command}
        self._commands |= table
        self._limiter.follow(plan)
        self._limiter.open()
        self._children.follow(table.values())
        self._wanted = {id: command.stage for id, command in table.items()}
        self._changed |= changed
        self._apply_wanted()

    def _apply_wanted(self) -> None:
        """Start and end what a plan says, as soon as this can be done."""
        if self._wanted is None or not self._children.prepared:
            return
        wanted, self._wanted = self._wanted, None
        changed, self._changed = tuple(self._changed), set()
        self._apply(Wanted(wanted, _now_ms()))
        if changed:
            log.info("%s: started again with other code", ", ".join(sorted(changed)))
            self._apply(RestartRequested(changed, _now_ms()))

    def _on_levels(self, value: bytes | None) -> None:
        self._levels = records.readable(records.log_levels, self._launch.topology, value, before=self._levels)
        self._level.follow(self._levels)

    def _find_hung(self) -> None:
        phases = self._supervision.phases
        looks = {id: look for id, look in self._children.looks().items() if phases.get(id) is Phase.RUNNING}
        hang = self._hangs.looked(looks, _now_ms())
        if hang is not None:
            log.error("%s is hung: pid %d, %s; it will be killed", hang.id, hang.pid, hang.why)
            self._hung[hang.pid] = hang.why
            self._apply(Hung(hang.id, hang.pid, hang.stopped, _now_ms()))

    def _kill_overruns(self) -> None:
        for id, pid, overrun in self._limiter.overruns():
            log.error("%s is over its RAM: pid %d, %s", id, pid, overrun)
            self._children.kill(pid)

    def _start(self, id: str) -> int | None:
        """Start a process within its limits; None if that cannot be done."""
        try:
            self._limiter.prepare(id)
        except OSError as e:
            log.error("%s is not started: it cannot be limited: %s", id, e)
            return None
        refused: list[OSError] = []

        def limit(pid: int) -> None:
            try:
                self._limiter.started(id, pid)
            except ProcessLookupError:
                pass  # it is dead already, and that will be reported
            except OSError as e:
                refused.append(e)

        pid = self._children.start(self._commands[id], limit)
        if pid is None:
            self._limiter.ended(id)
        elif refused:
            log.error("%s is killed: it cannot be limited: %s", id, refused[-1])
            self._children.kill(pid)
        return pid

    def _reap(self) -> None:
        for id, pid, code in self._children.dead():
            expected = self._supervision.phases.get(id) is Phase.ENDING
            overrun = self._limiter.ended(id)
            why = self._hung.pop(pid, "")
            self._children.report(id, pid, code, expected=expected, why=why, overrun=overrun)
            if expected:
                self._children.pids.retire(id)  # before it is started again, with other code
            self._apply(Exited(id, pid, _now_ms()))
            self._report_crash_loop(id)
            if id not in self._supervision.phases and not self._supervision.stopping:
                self._children.pids.forget(id)

    def _report_crash_loop(self, id: str) -> None:
        """Once for each crash loop, not for each crash."""
        looping = self._supervision.in_crash_loop(id, _now_ms())
        if looping and id not in self._looping:
            config = self._launch.config.executor
            window_s = config.crash_loop_window_ms / 1000
            log.error("%s is in a crash loop: it died %d times in %g s", id, config.crash_loop_restarts, window_s)
        (self._looping.add if looping else self._looping.discard)(id)

    def _apply(self, event: Event) -> None:
        """Carry out what an event entails, and what that entails, until nothing is left to do."""
        effects = self._supervision.on(event)
        while effects:
            effect = effects.pop(0)
            match effect:
                case Start(id):
                    pid = self._start(id)
                    done = StartFailed(id, _now_ms()) if pid is None else Started(id, pid, _now_ms())
                    effects += self._supervision.on(done)
                case Terminate(_, pid):
                    self._children.terminate(pid)
                case DumpStacks(_, pid):
                    self._children.dump_stacks(pid)
                case Kill(id, pid):
                    if pid in self._hung:
                        log.error("the stacks of %s:\n%s", id, self._children.stacks(pid) or "(none were written)")
                    else:
                        log.warning("%s did not end in time: killed", id)
                    self._children.kill(pid)
                case _:
                    assert_never(effect)

    def _sweep(self, whose: str) -> None:
        # Of this directory: another incarnation of the container may be on this host, with a directory of its own.
        mine = {TOPOLOGY_ENV: self._launch.topology_id, DIRECTORY_ENV: str(self._launch.dir)}
        killed = sweep(mine | {CONTAINER_ENV: str(self._container)})
        if killed:
            log.warning("%d processes %s were killed", killed, whose)

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[None]:
        """Hold the container's lock: two executors would run every task twice and sweep each other's processes."""
        self._dir.mkdir(exist_ok=True)
        with (self._dir / "executor.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyExistsError(f"another executor runs container {self._container} of {self._dir}") from None
            me = HostProcess.of(os.getpid())
            assert me is not None
            self._children.pids.started(EXECUTOR, me)
            try:
                yield
            finally:
                if self._supervision.finished:  # else the record stays, and the next executor counts as a restart
                    self._children.pids.retire(EXECUTOR)


def _now_ms() -> float:
    return time.monotonic() * 1000
