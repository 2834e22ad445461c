"""Showing users how far Spark is: one line on a terminal, a line now and then elsewhere. Both on stderr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from heronpy.pipeline.batch_times import batch_names
from heronpy.pipeline.progress import Progress as Moment

_LINE_EVERY_S = 30.0


@contextlib.contextmanager
def shown(batch_length_ms: int, *, quiet: bool = False) -> Iterator[Callable[[Moment], None]]:
    """What a batch run reports its progress to, for the duration of the block."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if not console.is_terminal:
        yield _Lines(console, batch_length_ms)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} tasks"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:
        start = bars.add_task("starting Spark", total=None)
        yield _Bar(bars, start, batch_length_ms)


@contextlib.contextmanager
def steps(what: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """What a task of few steps reports its progress to, for the duration of the block."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if not console.is_terminal:
        yield lambda _step: None
        return
    with console.status(what) as status:
        yield lambda step: status.update(f"{what}: {step}")


def described(moment: Moment, batch_length_ms: int) -> str:
    """The phase, and the batches that it is about."""
    return f"{moment.phase} {batch_names(moment.batches, batch_length_ms)}" if moment.batches else moment.phase


class _Bar:
    """One bar, of the phase that runs."""

    def __init__(self, bars: Progress, task: TaskID, batch_length_ms: int) -> None:
        self._bars, self._task = bars, task
        self._length_ms = batch_length_ms
        self._name = ""

    def __call__(self, moment: Moment) -> None:
        name = described(moment, self._length_ms)
        if name != self._name:
            self._name = name
            self._bars.reset(self._task, description=name, total=None)
        self._bars.update(self._task, completed=moment.done, total=moment.total or None)


class _Lines:
    """A line when a phase begins, and one every half a minute while it lasts."""

    def __init__(self, console: Console, batch_length_ms: int) -> None:
        self._console = console
        self._length_ms = batch_length_ms
        self._name = ""
        self._next_s = 0.0

    def __call__(self, moment: Moment) -> None:
        if moment.total == 0:
            return
        now_s = time.monotonic()
        name = described(moment, self._length_ms)
        if name != self._name or now_s >= self._next_s:
            self._name, self._next_s = name, now_s + _LINE_EVERY_S
            line = f"{name}: {moment.done} of {moment.total} tasks"
            self._console.print(line, markup=False, soft_wrap=True)  # a log's line stays one line
