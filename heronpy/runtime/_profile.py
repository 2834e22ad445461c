"""A sampling profiler inside of a process: where its threads spend their time, as stacks with weights.

A thread of its own looks at the stacks of all others at random intervals, RATE_HZ times a second on average, and adds
up how often each was seen, and how often its thread was computing then: whose CPU time grows while the profiler lets go
of the interpreter for a moment. The CPU time of each thread is measured, and divided by the latter. It runs from one
signal to another, and ends by itself after SECONDS_MAX.

    SIGRTMIN+1    start; ignored while it runs
    SIGRTMIN+2    stop, and write `<log>.profile`, as JSON: see `Profiler.profile`

What it costs is its own CPU time, which it measures (`cost_cpu_s`) and keeps below COST_MAX, and that a busy thread
hands over the interpreter for every look, twice. What it cannot see: C code that holds the interpreter counts for the
line after it, and of a thread that computes for less than the switch interval (2 ms in instances) at a time, only
where it waits next. Where all of a thread is like that, its CPU time is divided by how much grew before each look.

Rejected: faulthandler's signal handler many times a second (it reads stacks while they change), and CPU time from
`pthread_getcpuclockid` (undefined for a thread that has just ended; the clock of a thread id that is gone only fails).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from heronpy.files import replace_file

log = logging.getLogger(__name__)

START_SIGNAL: Final = signal.SIGRTMIN + 1
STOP_SIGNAL: Final = signal.SIGRTMIN + 2
RATE_HZ = 100.0
SECONDS_MAX = 60.0
"""It ends by itself, and writes nothing, if it is not stopped."""
DEPTH_MAX = 100
"""Frames of a stack; callers beyond are left out."""
STACKS_MAX = 2000
"""Different stacks; the time of those beyond is reported as `dropped`."""
FRAMES_MAX = 10_000
"""Different lines in all stacks."""
COST_MAX = 0.02
"""Share of a core that it may use itself: it looks less often where a look costs more."""
_TEXT_MAX = 300
_THREAD_CLOCK = 6
"""Lowest bits of the number of a clock: CPU time, of one thread. The others are those of the thread's id."""

_PROBE_S = 0.0002
_RUNNING_MIN = 0.1
"""A thread computes if it uses at least this share of the time for which it is watched."""

_Line = tuple[CodeType, int]
_Stack = tuple[str, tuple[_Line, ...]]
"""Name of the thread, and its lines from the outermost caller inwards."""


def profile_path(log_file: Path) -> Path:
    """Where the process that logs to this file writes its profile."""
    return log_file.with_suffix(".profile")


def answer_profiling(log_file: Path) -> None:
    """Answer START_SIGNAL and STOP_SIGNAL from now on. Called in the main thread, with the event loop running."""
    loop, running = asyncio.get_running_loop(), _Running(profile_path(log_file))
    loop.add_signal_handler(START_SIGNAL, running.start)
    loop.add_signal_handler(STOP_SIGNAL, running.stop)


class _Running:
    """At most one profiler at a time, in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._stop,), name="profiler", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self, stop: threading.Event) -> None:
        profiler = Profiler()
        profiler.run(stop)
        if not stop.is_set():
            return
        try:
            replace_file(self._path, json.dumps(profiler.profile()), durable=False, mode=0o600)
        except OSError as e:
            log.warning("the profile %s cannot be written: %s", self._path, e)


@dataclass(slots=True)
class _Weight:
    """Of one stack."""

    seen: int = 0
    computing: int = 0
    """How often of them its thread was computing."""
    before_ns: int = 0
    """CPU time of its thread between the looks that saw it and those before."""


class Profiler:
    """Samples all threads of this process but the one that calls `run`."""

    def __init__(
        self, rate_hz: float = RATE_HZ, *, seconds_max: float = SECONDS_MAX, stacks_max: int = STACKS_MAX
    ) -> None:
        self._interval_s = 1 / rate_hz
        self._seconds_max, self._stacks_max = seconds_max, stacks_max
        self._weights: dict[_Stack, _Weight] = {}
        self._lines: set[_Line] = set()
        self._used_ns: dict[int, int] = {}
        """By the kernel's id of a thread: its CPU time at the last sample."""
        self._samples = self._dropped = 0
        self._took_s = self._cost_cpu_s = 0.0

    def run(self, stop: threading.Event) -> None:
        """Sample until asked to stop, for at most `seconds_max`."""
        began_s, began_cpu_s, pause_s = time.monotonic(), time.thread_time(), self._interval_s
        for thread in threading.enumerate():
            self._grown_ns(thread)
        # At random intervals: whatever the process itself does every few ms must not be seen always or never.
        while self._took_s < self._seconds_max and not stop.wait(random.uniform(0.5, 1.5) * pause_s):
            self._look(stop)
            self._took_s, self._cost_cpu_s = time.monotonic() - began_s, time.thread_time() - began_cpu_s
            pause_s = max(self._interval_s, self._cost_cpu_s / COST_MAX - self._took_s)

    @property
    def samples(self) -> int:
        """How many were taken; also while it runs."""
        return self._samples

    def profile(self) -> dict[str, Any]:
        """What was seen: frames by number, and stacks of them with samples and CPU time. Call it after `run`."""
        numbers = {line: n for n, line in enumerate(self._lines)}
        return {
            "pid": os.getpid(),
            "seconds": self._took_s,
            "samples": self._samples,
            "dropped": self._dropped,
            "cost_cpu_s": self._cost_cpu_s,
            "frames": [_frame(code, line) for code, line in numbers],
            "stacks": [
                {
                    "thread": thread,
                    "frames": [numbers[line] for line in lines],
                    "samples": weight.seen,
                    "cpu_ns": cpu_ns,
                }
                for ((thread, lines), weight), cpu_ns in zip(self._weights.items(), self._cpu_ns(), strict=True)
            ],
        }

    def _cpu_ns(self) -> list[int]:
        """The CPU time of each stack: its share of that of its thread."""
        used_ns: Counter[str] = Counter()
        computing: Counter[str] = Counter()
        for (thread, _), weight in self._weights.items():
            used_ns[thread] += weight.before_ns
            computing[thread] += weight.computing
        return [
            used_ns[thread] * weight.computing // computing[thread] if computing[thread] else weight.before_ns
            for (thread, _), weight in self._weights.items()
        ]

    def _look(self, stop: threading.Event) -> None:
        threads = {thread.ident: thread for thread in threading.enumerate()}
        me = threading.get_ident()
        stacks = [(threads.get(id), _lines(frame)) for id, frame in sys._current_frames().items() if id != me]
        before_ns = [self._grown_ns(thread) for thread, _ in stacks]
        began_ns = time.monotonic_ns()
        stop.wait(_PROBE_S)
        least_ns = _RUNNING_MIN * (time.monotonic_ns() - began_ns)
        self._samples += 1
        for (thread, lines), grown_ns in zip(stacks, before_ns, strict=True):
            now_ns = self._grown_ns(thread)
            name = thread.name[:_TEXT_MAX] if thread else "foreign"
            self._add((name, lines), grown_ns + now_ns, computing=now_ns > least_ns)

    def _grown_ns(self, thread: threading.Thread | None) -> int:
        """CPU time of a thread since this was asked before."""
        if thread is None or thread.native_id is None:
            return 0
        # Python 3.11 leaves the main thread of a fork the id that it had in the parent.
        native_id = os.getpid() if thread is threading.main_thread() else thread.native_id
        try:
            now_ns = time.clock_gettime_ns((~native_id << 3) | _THREAD_CLOCK)
        except OSError:
            return 0  # it has just ended
        before_ns = self._used_ns.get(native_id, now_ns)
        self._used_ns[native_id] = now_ns
        return max(0, now_ns - before_ns)

    def _add(self, stack: _Stack, cpu_ns: int, *, computing: bool) -> None:
        weight = self._weights.get(stack)
        if weight is None:
            new = [line for line in stack[1] if line not in self._lines]
            if len(self._weights) >= self._stacks_max or len(self._lines) + len(new) > FRAMES_MAX:
                self._dropped += 1
                return
            self._lines.update(new)
            weight = self._weights[stack] = _Weight()
        weight.seen += 1
        weight.computing += computing
        weight.before_ns += cpu_ns


def _lines(frame: FrameType) -> tuple[_Line, ...]:
    return tuple(reversed(list(_walk(frame))))


def _walk(frame: FrameType | None) -> Iterator[_Line]:
    """From the innermost frame outwards."""
    for _ in range(DEPTH_MAX):
        if frame is None:
            return
        yield frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno
        frame = frame.f_back


def _frame(code: CodeType, line: int) -> dict[str, Any]:
    return {"function": code.co_qualname[:_TEXT_MAX], "file": code.co_filename[-_TEXT_MAX:], "line": line}
