"""When to start, restart and end the processes of one container. Decisions only: no clock, no process.

Every process has a *stage*. They start all at once, because each of them waits for the others by itself, and end stage
by stage: first the instances, so that they can still hand over what they emitted, then the Stream Manager, at last the
Metrics Manager, so that the last metrics arrive.

A dead process is started again after a pause that doubles with each death, so that a process that cannot start does
not eat the machine; one that lived for the stable time has earned the shortest pause again. One that dies too often
within a window is in a crash loop, however long it lives in between: that is reported, and changes nothing else.

The scheduler service supervises its executors with the same rules: there, "process" is a container.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from heronpy.config import ExecutorConfig
from heronpy.supervision._events import (
    DumpStacks,
    Effect,
    Event,
    Exited,
    Found,
    Hung,
    Kill,
    RestartRequested,
    Start,
    Started,
    StartFailed,
    StopRequested,
    Terminate,
    Ticked,
    Wanted,
)

DEATHS_MAX = 1000
STACKS_MS = 1000
"""How long a hung process may take to write its stacks."""


class Phase(enum.Enum):
    """Where a process is in its life."""

    WAITING = "waiting"
    """It does not run; it is started at `start_at_ms`."""
    STARTING = "starting"
    """`Start` was given and has not been answered."""
    RUNNING = "running"
    ENDING = "ending"
    """It was asked to end; it is killed at `kill_at_ms`."""
    HUNG = "hung"
    """It writes its stacks, and is killed at `kill_at_ms`."""


@dataclass(slots=True)
class _Process:
    stage: int
    phase: Phase = Phase.WAITING
    wanted: bool = True
    pid: int = 0
    started_ms: float = 0.0
    start_at_ms: float = 0.0
    kill_at_ms: float = 0.0
    quick_deaths: int = 0
    deaths_ms: deque[float] = field(default_factory=lambda: deque(maxlen=DEATHS_MAX))
    """When it died unasked: the last ones."""


@dataclass(slots=True)
class Supervision:
    """The processes of one container: events in, effects out."""

    config: ExecutorConfig
    stopping: bool = False
    _processes: dict[str, _Process] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """A stop was asked for and nothing is left."""
        return self.stopping and not self._processes

    @property
    def all_run(self) -> bool:
        """Every process runs: until one dies, or something is asked for, nothing comes due."""
        return all(p.phase is Phase.RUNNING for p in self._processes.values())

    @property
    def pids(self) -> dict[str, int]:
        """Pid of every process that runs or ends."""
        return {id: p.pid for id, p in self._processes.items() if p.pid}

    @property
    def phases(self) -> dict[str, Phase]:
        return {id: p.phase for id, p in self._processes.items()}

    def on(self, event: Event) -> list[Effect]:
        """Take an event; the effects are to be carried out in order. Late and repeated events change nothing."""
        match event:
            case Wanted():
                self._on_wanted(event)
            case Found():
                self._processes.setdefault(event.id, _Process(event.stage))
                self._on_started(Started(event.id, event.pid, event.now_ms))
            case Started():
                self._on_started(event)
            case StartFailed():
                self._on_start_failed(event)
            case Exited():
                self._on_exited(event)
            case Hung():
                return self._on_hung(event) + self._due(event.now_ms)
            case RestartRequested():
                return self._on_restart(event) + self._due(event.now_ms)
            case StopRequested():
                self.stopping = True
            case Ticked():
                pass
        return self._due(event.now_ms)

    def pause_ms(self, quick_deaths: int) -> float:
        """How long to wait before the next start after this many deaths in a row."""
        # The exponent is bounded: 2**n of a process that dies for a week is a very large integer.
        doubled: float = self.config.restart_backoff_ms * 2 ** min(max(quick_deaths - 1, 0), 30)
        return min(doubled, self.config.restart_backoff_max_ms)

    def in_crash_loop(self, id: str, now_ms: float) -> bool:
        """Whether a process died too often within the window."""
        process = self._processes.get(id)
        deaths = process.deaths_ms if process is not None else ()
        limit = min(self.config.crash_loop_restarts, DEATHS_MAX)
        return len(deaths) >= limit and now_ms - deaths[-limit] <= self.config.crash_loop_window_ms

    def check_invariants(self) -> None:
        for id, p in self._processes.items():
            assert bool(p.pid) == (p.phase in (Phase.RUNNING, Phase.ENDING, Phase.HUNG)), (id, p)
            assert p.wanted or p.phase in (Phase.STARTING, Phase.ENDING, Phase.HUNG), (id, p)
            assert not (self.stopping and p.phase is Phase.WAITING), (id, p)
        pids = [p.pid for p in self._processes.values() if p.pid]
        assert len(pids) == len(set(pids)), pids

    def _on_wanted(self, event: Wanted) -> None:
        if self.stopping:
            return
        for id, stage in event.stages.items():
            process = self._processes.setdefault(id, _Process(stage, start_at_ms=event.now_ms))
            process.wanted = True
        for id, process in self._processes.items():
            process.wanted = id in event.stages

    def _on_started(self, event: Started) -> None:
        process = self._processes.get(event.id)
        if process is None or process.pid:
            return
        process.phase = Phase.RUNNING
        process.pid = event.pid
        process.started_ms = event.now_ms

    def _on_start_failed(self, event: StartFailed) -> None:
        process = self._processes.get(event.id)
        if process is not None and process.phase is Phase.STARTING:
            self._wait(process, event.now_ms)

    def _on_exited(self, event: Exited) -> None:
        process = self._processes.get(event.id)
        if process is None or process.pid != event.pid:
            return
        process.pid = 0
        if process.phase is Phase.ENDING:
            # It was asked to: if it is wanted again, then at once.
            process.phase, process.start_at_ms, process.quick_deaths = Phase.WAITING, event.now_ms, 0
            return
        if event.now_ms - process.started_ms >= self.config.stable_ms:
            process.quick_deaths = 0
        self._wait(process, event.now_ms)

    def _on_hung(self, event: Hung) -> list[Effect]:
        process = self._processes.get(event.id)
        if process is None or process.pid != event.pid or process.phase is not Phase.RUNNING:
            return []
        process.phase = Phase.HUNG
        process.kill_at_ms = event.now_ms + (0 if event.stopped else STACKS_MS)
        return [] if event.stopped else [DumpStacks(event.id, event.pid)]

    def _on_restart(self, event: RestartRequested) -> list[Effect]:
        effects: list[Effect] = []
        for id in event.ids:
            process = self._processes.get(id)
            if process is None or self.stopping:
                continue
            if process.phase is Phase.RUNNING:
                effects.append(self._terminate(id, process, event.now_ms))
            elif process.phase is Phase.WAITING:
                process.start_at_ms, process.quick_deaths = event.now_ms, 0
        return effects

    def _wait(self, process: _Process, now_ms: float) -> None:
        process.quick_deaths += 1
        process.deaths_ms.append(now_ms)
        process.phase = Phase.WAITING
        process.start_at_ms = now_ms + self.pause_ms(process.quick_deaths)

    def _due(self, now_ms: float) -> list[Effect]:
        """What has to be done now, whatever happened."""
        for id in [id for id, p in self._processes.items() if p.phase is Phase.WAITING]:
            if self.stopping or not self._processes[id].wanted:
                del self._processes[id]
        effects: list[Effect] = []
        stage = min((p.stage for p in self._processes.values()), default=0)
        for id, process in self._processes.items():
            if process.phase is Phase.WAITING and process.start_at_ms <= now_ms:
                process.phase = Phase.STARTING
                effects.append(Start(id))
            elif process.phase is Phase.RUNNING and (not process.wanted or (self.stopping and process.stage == stage)):
                effects.append(self._terminate(id, process, now_ms))
            elif process.phase in (Phase.ENDING, Phase.HUNG) and process.kill_at_ms <= now_ms:
                process.kill_at_ms = now_ms + self.config.stop_timeout_ms
                effects.append(Kill(id, process.pid))
        return effects

    def _terminate(self, id: str, process: _Process, now_ms: float) -> Effect:
        process.phase = Phase.ENDING
        process.kill_at_ms = now_ms + self.config.stop_timeout_ms
        return Terminate(id, process.pid)
