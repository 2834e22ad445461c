"""The local scheduler: every container is an executor process on this host.

Executors outlive the service that started them, so that a service that died or was upgraded finds them again: by the
environment they were started with, because a file could be missing or out of date. They share the service's session,
which has no terminal: Linux divides the CPU among sessions first (autogroup), and with a session for each container one
of them could starve the others.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from heron_scheduler._spi import Scheduler
from heronpy.errors import NotFoundError, StateError, UnavailableError
from heronpy.executor import (
    CONTAINER_ENV,
    OWNER_ENV,
    PROCESS_ENV,
    TOPOLOGY_ENV,
    Effect,
    Event,
    Exited,
    Found,
    HostProcess,
    Kill,
    RestartAsked,
    Start,
    Started,
    StartFailed,
    StopAsked,
    Supervision,
    Terminate,
    Ticked,
    Wanted,
    child_environment,
    find_by_environment,
    open_out,
    python_module,
    sweep,
)
from heronpy.plan import PackingPlan
from heronpy.proto import plan_pb2, state_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, StateManager, open_statemgr

log = logging.getLogger(__name__)

EXECUTOR = "executor"
SERVICE = "scheduler"
POLL_S = 0.05
_STAGE = 0
"""The same for every container: they end in parallel."""
_EXECUTOR_STAGES = 3
"""An executor ends its processes in so many stages, each within the stop timeout."""


class LocalScheduler(Scheduler):
    """Starts an executor per container on this host, and starts the dead ones again.

    With an `owner`, executors end by themselves when that process is gone: for clusters that must not outlive a test.
    """

    def __init__(self, launch: Launch, *, owner: HostProcess | None = None) -> None:
        super().__init__(launch)
        self._owner = owner
        config = launch.config.executor
        # An executor is given the time it gives its own processes, and a little more to tidy up.
        self._stop_timeout_ms = _EXECUTOR_STAGES * config.stop_timeout_ms + 3000
        self._supervision = Supervision(dataclasses.replace(config, stop_timeout_ms=self._stop_timeout_ms))
        self._executors: dict[str, HostProcess] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}

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
        self._apply(RestartAsked(tuple(chosen), _now_ms()))
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
                log.warning("the executor of container %s, pid %d, ended%s", id, process.pid, _how(code))
            self._children.pop(process.pid, None)
            del self._executors[id]
            self._apply(Exited(id, process.pid, _now_ms()))
        self._apply(Ticked(_now_ms()))

    def on_kill(self) -> None:
        """End the service, if it is another process, all executors in parallel, and whatever they left behind."""
        mine = {TOPOLOGY_ENV: self.launch.topology_id}
        # First, because it would start executors again.
        sweep(mine | {PROCESS_ENV: SERVICE})
        for container, process in self._find_executors().items():
            self._adopt(container, process)
        self._apply(StopAsked(_now_ms()))
        self._wait(lambda: self._supervision.finished, "the executors to end", self._stop_timeout_ms * 2)
        sweep(mine)
        self._forget()

    def job_links(self) -> Sequence[str]:
        """The topology's directory: there are the logs."""
        return [self.launch.dir.as_uri()]

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
                case Kill(id):
                    log.warning("the executor of container %s did not end in time: killed", id)
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
        ours = {CONTAINER_ENV: str(container)}
        if self._owner is not None:
            ours[OWNER_ENV] = str(self._owner)
        try:
            launch.container_dir(container).mkdir(parents=True, exist_ok=True)
            with open_out(launch.log_dir(container) / "executor.out") as out:
                child = subprocess.Popen(
                    python_module("heronpy.executor", "--dir", str(launch.dir), "--container", str(container)),
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
        self._children[child.pid] = child
        log.info("started the executor of container %d: pid %d", container, child.pid)
        return HostProcess.of(child.pid)

    def _wait(self, done: Callable[[], bool], what: str, within_ms: float | None = None) -> None:
        deadline = _now_ms() + (within_ms or self._stop_timeout_ms + 10_000)
        while True:
            self.on_tick()
            if done():
                return
            if _now_ms() > deadline:
                raise UnavailableError(f"topology {self.launch.topology}: waited in vain for {what}")
            time.sleep(POLL_S)

    def _plan(self) -> PackingPlan:
        statemgr = open_statemgr(self.launch.statemgr)
        try:
            value = statemgr.get(Kind.PACKINGPLANS, self.launch.topology)
        finally:
            statemgr.close()
        if value is None:
            raise NotFoundError(f"topology {self.launch.topology} has no packing plan: it is not running")
        return PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(value))

    def _forget(self) -> None:
        """Remove the topology from the state manager and from this host."""
        statemgr = open_statemgr(self.launch.statemgr)
        try:
            if _is_ours(statemgr, self.launch):
                # The execution state last: by it a kill that was interrupted here finds the topology again.
                kinds = [kind for kind in Kind if kind not in (Kind.EXECUTIONSTATE, Kind.LOCKS)]
                for kind in (*kinds, Kind.EXECUTIONSTATE):
                    statemgr.delete(kind, self.launch.topology)
        finally:
            statemgr.close()
        root = self.launch.socket_root()
        _remove_tree(root)
        _remove_if_empty(root.parent)
        _remove_tree(self.launch.dir)
        log.info("topology %s is gone", self.launch.topology)


def _is_ours(statemgr: StateManager, launch: Launch) -> bool:
    """Whether the state under the topology's name is of this submission, not of a later one with the same name."""
    value = statemgr.get(Kind.EXECUTIONSTATE, launch.topology)
    return value is None or state_pb2.ExecutionState.FromString(value).topology_id == launch.topology_id


def _containers(plan: PackingPlan) -> dict[str, int]:
    return {str(id): _STAGE for id in (0, *(container.id for container in plan.containers))}


def _remove_tree(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as e:
        raise StateError(f"{path} cannot be removed: {e.strerror or e}") from e


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return  # another topology has its sockets there


def _how(code: int | None) -> str:
    if code is None:
        return ""
    return f", killed by {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"


def _now_ms() -> float:
    return time.monotonic() * 1000
