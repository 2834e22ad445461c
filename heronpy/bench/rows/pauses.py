"""For how long a topology counts nothing while it gets another number of tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

POLL_S: Final = 0.01
UPDATE_TIMEOUT_S: Final = 600.0


class Updatable(Protocol):
    """What can get another number of counting tasks."""

    def update(self, *, timeout_s: float, **parallelism: int) -> object:
        """Return when all tasks run, at the latest then."""


class CountingTasks(Protocol):
    """A counting topology that runs."""

    tasks: int
    """How many are asked."""

    @property
    def topology(self) -> Updatable: ...

    def answers(self) -> list[dict[str, Any]]:
        """What each task says of itself: `task`, `epoch`, and the `count` since then."""

    def wait(self, what: str, done: Callable[[], bool], within_s: float) -> None:
        """Wait for a condition."""


def update_pause_s(counting: CountingTasks, tasks: int, *, clock: Callable[[], float] = time.monotonic) -> float:
    """Update the number of tasks. Returns for how long nothing was counted, in seconds.

    The pause may begin and end while the update runs, or outlast it: it is over when each task has counted.
    """
    epoch = max(answer["epoch"] for answer in counting.answers())
    before, counting.tasks = counting.tasks, max(counting.tasks, tasks)
    counted: dict[str, Any] = {}
    changed_s, longest_s = clock(), 0.0
    with ThreadPoolExecutor(1) as thread:
        updating = thread.submit(lambda: counting.topology.update(count=tasks, timeout_s=UPDATE_TIMEOUT_S))
        try:
            while not updating.done():
                now = {answer["task"]: (answer["epoch"], answer["count"]) for answer in counting.answers()}
                if any(found != counted.get(task) and found[1] for task, found in now.items()):
                    longest_s = max(longest_s, clock() - changed_s)
                    changed_s = clock()
                counted |= now  # who does not answer in time has counted nothing that is known
                time.sleep(POLL_S)
            updating.result()
            counting.tasks = tasks
        except BaseException:
            counting.tasks = before
            raise

    def counts() -> bool:
        answers = counting.answers()
        return len(answers) == tasks and all(a["epoch"] > epoch and a["count"] for a in answers)

    counting.wait("a task counts nothing after the update", counts, UPDATE_TIMEOUT_S)
    return max(longest_s, clock() - changed_s)
