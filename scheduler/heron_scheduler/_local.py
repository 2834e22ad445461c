"""The local scheduler: every container is an executor process on this host.

Executors outlive the service that started them, so that a service that died or was upgraded finds them again: by the
environment they were started with, because a file could be missing or out of date. They share the service's session,
which has no terminal: Linux divides the CPU among sessions first (autogroup), and with a session for each container one
of them could starve the others.
"""

from __future__ import annotations

import logging
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from msgspec import structs

from heron_scheduler._spi import ContainerPhase, ContainerStatus, Scheduler
from heronpy.errors import NotFoundError, UnavailableError
from heronpy.executor import stop_limit_s
from heronpy.host import (
    CONTAINER_ENV,
    EXECUTOR,
    OWNER_ENV,
    PROCESS_ENV,
    SERVICE,
    SUPERVISES_SERVICE_ENV,
    TOPOLOGY_ENV,
    HostProcess,
    PidFiles,
    child_environment,
    engine_process,
    find_by_environment,
    heartbeat_path,
    is_killed,
    look_at,
    mark_killed,
    open_out,
    prepare_heartbeat,
    read_pids,
    sweep,
    tail,
)
from heronpy.limits import remove_cgroups
from heronpy.plan import PackingPlan
from heronpy.runtime import HEARTBEAT_ENV, Launch
from heronpy.statemgr import Kind, open_statemgr, records
from heronpy.supervision import (
    DumpStacks,
    Effect,
    Event,
    Exited,
    Found,
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
_ENDS = "executor ends: "
"""Before the reason in the log of one that ends with an error."""
_LAST_LINE_MAX = 500
_LATELY_S = 600
"""For so long it is of interest how the predecessor of an executor died."""
LOOK_S = 1.0
"""How often the heartbeats of executors are looked at."""
_STAGE = 0
"""The same for every container: they end in parallel."""


class LocalScheduler(Scheduler):
    """Starts an executor per container on this host, and starts the dead ones again.

    With an `owner`, executors end by themselves when that process is gone: for clusters that must not outlive a test.
    The executors look after the scheduler service, as this does after them.
    """

    has_service = True

    def __init__(self, launch: Launch, *, owner: HostProcess | None = None) -> None:
        super().__init__(launch)
        self._owner = owner
        config = launch.config.executor
        # An executor is given the time it gives its own processes, and a little more to tidy up.
        self._stop_timeout_ms = int(stop_limit_s(launch) * 1000) + 3000
        self._supervision = Supervision(structs.replace(config, stop_timeout_ms=self._stop_timeout_ms))
        self._executors: dict[str, HostProcess] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[int, dict[Path, int]] = {}
        """Where in its log files what a child has written begins."""
        self._hangs = HangDetector(config.heartbeat_timeout_ms, LOOK_S * 1000)
        self._look_at_s = 0.0

    def on_schedule(self, plan: PackingPlan) -> None:
        """Start the executors that do not run; adopt those that do."""
        for container, process in self._find_executors().items():
            # Also those that are no longer in the plan, so that they are ended.
            self._adopt(container, process)
        self._apply(Wanted(_containers(plan), _now_ms()))

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        """Start added containers and end removed ones; returns when the removed ones have ended."""
        self.on_schedule(new)
        removed = sorted(_containers(old).keys() - _containers(new).keys())
        self._wait(
            lambda: not set(removed) & self._supervision.phases.keys(), f"containers {', '.join(removed)} to end"
        )
        for container in removed:
            shutil.rmtree(self.launch.socket_root() / container, ignore_errors=True)

    def on_restart(self, container: int | None) -> None:
        """End executors and start them again; returns when the new ones run."""
        if not self._supervision.phases:
            self.on_schedule(self._plan())
        chosen = list(self._supervision.phases) if container is None else [str(container)]
        if unknown := set(chosen) - self._supervision.phases.keys():
            known = ", ".join(sorted(self._supervision.phases, key=int))
            raise NotFoundError(f"topology {self.launch.topology} has no container {unknown.pop()}; it has {known}")
        before = {id: self._executors.get(id) for id in chosen}
        self._apply(RestartRequested(tuple(chosen), _now_ms()))
        self._wait(
            lambda: all(id in self._supervision.pids and self._executors[id] != before[id] for id in chosen),
            f"containers {', '.join(chosen)} to restart",
        )

    def on_tick(self) -> None:
        """Notice dead executors, and start again those whose pause is over."""
        for id, process in list(self._executors.items()):
            child = self._children.get(process.pid)
            code = child.poll() if child else None  # reaps it, if it is ours
            if process.alive:
                continue
            if id in self._supervision.pids:
                self._report_end(id, process, code)
            self._children.pop(process.pid, None)
            self._log_starts.pop(process.pid, None)
            del self._executors[id]
            self._apply(Exited(id, process.pid, _now_ms()))
        if time.monotonic() >= self._look_at_s:
            self._look_at_s = time.monotonic() + LOOK_S
            self._find_hung()
        self._apply(Ticked(_now_ms()))

    def on_kill(self) -> None:
        """End all executors in parallel, the service, if it is another process, and whatever they left behind."""
        mine = {TOPOLOGY_ENV: self.launch.topology_id}
        mark_killed(self.launch.dir)  # first: else executor 0 would start the service again, and that the executors
        sweep(mine | {PROCESS_ENV: SERVICE})
        for container, process in self._find_executors().items():
            self._adopt(container, process)
        self._apply(StopRequested(_now_ms()))
        self._wait(lambda: self._supervision.finished, "the executors to end", self._stop_timeout_ms * 2)
        sweep(mine)
        for directory in self.launch.dir.glob("container_*"):
            remove_cgroups(directory)  # of executors that were killed

    def job_links(self) -> Sequence[str]:
        """The topology's directory: there are the logs."""
        return [self.launch.dir.as_uri()]

    def containers(self) -> Sequence[ContainerStatus]:
        """The executors that run on this host, and those that died and wait for their next start."""
        killed, host = is_killed(self.launch.dir), socket.gethostname()
        found = {int(container): process for container, process in self._find_executors().items()}
        ends = {} if killed else self._last_ends()
        phase = ContainerPhase.ENDING if killed else ContainerPhase.RUNNING
        return [
            ContainerStatus(container=n, phase=phase, host=host, job=f"pid {found[n].pid}", reason=ends.get(n, ""))
            if n in found
            else ContainerStatus(container=n, phase=ContainerPhase.PENDING, reason=ends[n])
            for n in sorted(found.keys() | ends.keys())
        ]

    def _last_ends(self) -> dict[int, str]:
        """By container: how its executor died, if it is dead now or died lately."""
        records = {
            int(number): read_pids(directory).get(EXECUTOR)
            for directory in self.launch.dir.glob("container_*")
            if (number := directory.name.removeprefix("container_")).isdecimal()
        }
        return {
            n: record.last_end
            for n, record in records.items()
            if record is not None and (not record.alive or record.restarts_within(_LATELY_S, time.time()))
        }

    def _report_end(self, id: str, process: HostProcess, code: int | None) -> None:
        how = _how(code)
        starts = self._log_starts.get(process.pid, {}) if code is not None and code > 0 else {}
        last = next(filter(None, (tail(path, from_byte=start, lines=1) for path, start in starts.items())), "")
        how += f": {last.rpartition(_ENDS)[2]:.{_LAST_LINE_MAX}}" if last else ""
        log.warning("the executor of container %s, pid %d, ended%s", id, process.pid, f": {how}" if how else "")
        if code:
            PidFiles(self.launch.container_dir(int(id))).ended(EXECUTOR, process, how)

    def _find_hung(self) -> None:
        phases = self._supervision.phases
        looks = {
            id: look_at(self.launch.container_dir(int(id)), EXECUTOR, process)
            for id, process in self._executors.items()
            if phases.get(id) is Phase.RUNNING
        }
        hang = self._hangs.looked({id: look for id, look in looks.items() if look is not None}, _now_ms())
        if hang is not None:
            log.error(
                "the executor of container %s is hung: pid %d, %s; it will be killed", hang.id, hang.pid, hang.why
            )
            self._apply(Hung(hang.id, hang.pid, hang.stopped, _now_ms()))

    def _adopt(self, container: str, process: HostProcess) -> None:
        if self._executors.get(container) == process:
            return
        log.info("found the executor of container %s: pid %d", container, process.pid)
        self._executors[container] = process
        self._apply(Found(container, _STAGE, process.pid, _now_ms()))

    def _find_executors(self) -> dict[str, HostProcess]:
        """The oldest executor per container: a younger one gives way, or is a child of it that has not exec'd yet."""
        wanted = {TOPOLOGY_ENV: self.launch.topology_id, PROCESS_ENV: EXECUTOR}
        found = sorted(find_by_environment(wanted), key=lambda x: x[0].start_ticks, reverse=True)
        return {env[CONTAINER_ENV]: process for process, env in found if CONTAINER_ENV in env}

    def _apply(self, event: Event) -> None:
        effects: list[Effect] = self._supervision.on(event)
        while effects:
            effect = effects.pop(0)
            match effect:
                case Start(id):
                    effects += self._supervision.on(self._start(id))
                case Terminate(id):
                    self._executors[id].send(signal.SIGTERM)
                case DumpStacks(id):
                    self._executors[id].send(signal.SIGUSR1)  # to executor.stack, beside its log
                case Kill(id):
                    log.warning("the executor of container %s is killed", id)
                    self._executors[id].send(signal.SIGKILL)  # and the kernel ends its children
                case _:
                    assert_never(effect)

    def _start(self, container: str) -> Started | StartFailed:
        found = self._find_executors().get(container)
        if found is None:
            found = self._spawn(int(container))
        if found is None:
            return StartFailed(container, _now_ms())
        self._executors[container] = found
        return Started(container, found.pid, _now_ms())

    def _spawn(self, container: int) -> HostProcess | None:
        launch = self.launch
        ours = {CONTAINER_ENV: str(container), SUPERVISES_SERVICE_ENV: "1"}
        if self._owner is not None:
            ours[OWNER_ENV] = str(self._owner)
        logs = [launch.log_dir(container) / name for name in ("executor.out", "executor.log")]
        try:
            launch.container_dir(container).mkdir(exist_ok=True)  # but never a directory of the topology anew
            prepare_heartbeat(heartbeat := heartbeat_path(launch.container_dir(container), EXECUTOR))
            ours[HEARTBEAT_ENV] = str(heartbeat)
            with open_out(logs[0]) as out:
                starts = {path: path.stat().st_size if path.exists() else 0 for path in logs}
                child = subprocess.Popen(
                    engine_process("heronpy.executor", "--dir", str(launch.dir), "--container", str(container)),
                    cwd=launch.container_dir(container),
                    env=child_environment(launch, EXECUTOR, **ours),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                )
        except OSError as e:
            log.error("the executor of container %d cannot be started: %s", container, e)
            return None
        self._children[child.pid], self._log_starts[child.pid] = child, starts
        log.info("started the executor of container %d: pid %d", container, child.pid)
        try:
            return HostProcess.of(child.pid)
        except OSError as e:
            log.error("the executor of container %d cannot be looked at, it is adopted later: %s", container, e)
            return None

    def _wait(self, done: Callable[[], bool], what: str, within_ms: float | None = None) -> None:
        deadline = _now_ms() + (within_ms or self._stop_timeout_ms + 10_000)
        while True:
            self.on_tick()
            if done():
                return
            if _now_ms() > deadline:
                raise UnavailableError(f"topology {self.launch.topology}: timed out waiting for {what}")
            time.sleep(POLL_S)

    def _plan(self) -> PackingPlan:
        statemgr = open_statemgr(self.launch.statemgr, parents=False)
        try:
            value = statemgr.get(Kind.PACKINGPLANS, self.launch.topology)
        finally:
            statemgr.close()
        if value is None:
            raise NotFoundError(f"topology {self.launch.topology} has no packing plan: it is not running")
        return records.packing_plan(self.launch.topology, value)


def _containers(plan: PackingPlan) -> dict[str, int]:
    return {str(id): _STAGE for id in (0, *(container.id for container in plan.containers))}


def _how(code: int | None) -> str:
    if code is None:
        return ""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _now_ms() -> float:
    return time.monotonic() * 1000
