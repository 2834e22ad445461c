"""Telling whoever waits how far Spark is: a bar on a terminal, a line now and then elsewhere. Both on stderr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from heronpy.pipeline._progress import Progress as Moment

_LINE_EVERY_S = 5.0


@contextlib.contextmanager
def shown(*, quiet: bool = False) -> Iterator[Callable[[Moment], None]]:
    """What a batch run can tell its progress, for the duration of the block."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} tasks"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:
        start = bars.add_task("starting Spark", total=None)
        yield _Bars(bars, start)


@contextlib.contextmanager
def steps(what: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """What a task of few steps can tell its progress, for the duration of the block."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if not console.is_terminal:
        yield lambda _step: None
        return
    with console.status(what) as status:
        yield lambda step: status.update(f"{what}: {step}")


def described(moment: Moment) -> str:
    """The phase, and the batches that it is about."""
    if not moment.batches:
        return moment.phase
    first, last = moment.batches[0], moment.batches[-1]
    if first == last:
        return f"{moment.phase} batch {first}"
    return f"{moment.phase} {len(moment.batches):,} batches, {first} to {last}"


class _Bars:
    """One bar for each phase of each group of batches."""

    def __init__(self, bars: Progress, start: TaskID) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._start: TaskID | None = start

    def __call__(self, moment: Moment) -> None:
        if self._start is not None:
            self._bars.remove_task(self._start)
            self._start = None
        name = described(moment)
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=None)
        self._bars.update(self._tasks[name], completed=moment.done, total=moment.total or None)


class _Lines:
    """A line when a phase begins, and one every few seconds while it lasts."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._name = ""
        self._next_s = 0.0

    def __call__(self, moment: Moment) -> None:
        if moment.total == 0:
            return
        now_s = time.monotonic()
        name = described(moment)
        if name != self._name or now_s >= self._next_s:
            self._name, self._next_s = name, now_s + _LINE_EVERY_S
            self._console.print(f"{name}: {moment.done} of {moment.total} tasks", markup=False)
