"""Whose actions run and whose wait: no user takes all places, and kills and admins have lanes of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any

from heronpy.apiserver._users import Access, User
from heronpy.errors import UnavailableError

Result = dict[str, Any]


class Lane(StrEnum):
    """Actions that wait for each other, and for none of another lane."""

    ADMIN = "admin"
    """Whatever an admin does."""
    KILL = "kill"
    """What frees resources, of all other users."""
    OTHER = "other"


AT_ONCE_MAX = {Lane.ADMIN: 4, Lane.KILL: 4, Lane.OTHER: 8}
"""Actions of a lane that run at once; more wait."""
AT_ONCE_OF_USER_MAX = {Lane.ADMIN: 4, Lane.KILL: 2, Lane.OTHER: 4}
"""And of one user."""
_USERS_SHARE = 4
"""Part of the places of a lane that a user may take who is not an admin: one in so many."""


def lane_of(user: User, action: str) -> Lane:
    """Where an action of a user waits."""
    if user.access is Access.ADMIN:
        return Lane.ADMIN
    return Lane.KILL if action == "kill" else Lane.OTHER


class Lanes:
    """Runs actions, which block, in threads."""

    def __init__(self, actions_max: int) -> None:
        """With so many actions in a lane that run or wait."""
        self._actions_max = actions_max
        # Threads of their own: actions wait for clusters, and would take those of read requests.
        self._threads = {lane: ThreadPoolExecutor(n, f"apiserver-{lane}") for lane, n in AT_ONCE_MAX.items()}
        self._turns: dict[tuple[Lane, str], asyncio.Semaphore] = {}
        self._under_way: dict[asyncio.Task[Result], tuple[Lane, str]] = {}
        self._submitted: set[asyncio.Task[Result]] = set()
        self._stopped = False

    def start(
        self, user: User, action: str, function: Callable[[], Result], after: Callable[[], None]
    ) -> asyncio.Task[Result]:
        """Have a function run when it is its turn, and call `after` when it has ended, or does not run at all.

        The task is cancelled if the server stops before its turn.

        Raises:
            UnavailableError: too many wait already, or the server stops: it was not started.
        """
        lane = lane_of(user, action)
        try:
            self._check(lane, user)
        except UnavailableError:
            after()
            raise
        key = lane, user.name
        if key not in self._turns:
            self._turns[key] = asyncio.Semaphore(AT_ONCE_OF_USER_MAX[lane])
        task = asyncio.create_task(self._run(key, function), name=f"apiserver/{action}")
        self._under_way[task] = key
        task.add_done_callback(self._forget)
        task.add_done_callback(lambda _: after())
        return task

    def _check(self, lane: Lane, user: User) -> None:
        if self._stopped:
            raise UnavailableError("the server stops: ask again when it is back")
        counts = Counter(self._under_way.values())
        of_user_max = self._actions_max if lane is Lane.ADMIN else max(1, self._actions_max // _USERS_SHARE)
        if counts[lane, user.name] >= of_user_max:
            raise UnavailableError(
                f"{counts[lane, user.name]} actions of user {user.name} run or wait already; try again later"
            )
        if sum(count for (other, _), count in counts.items() if other is lane) >= self._actions_max:
            raise UnavailableError("too many actions wait; try again later")

    async def _run(self, key: tuple[Lane, str], function: Callable[[], Result]) -> Result:
        async with self._turns[key]:
            future = self._threads[key[0]].submit(function)
            task = asyncio.current_task()
            assert task is not None
            self._submitted.add(task)
            return await asyncio.wrap_future(future)

    def _forget(self, task: asyncio.Task[Result]) -> None:
        del self._under_way[task]
        self._submitted.discard(task)

    def stop(self) -> None:
        """Start nothing more: tasks of actions whose turn has not come are cancelled."""
        self._stopped = True
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        for task in self._under_way.keys() - self._submitted:
            task.cancel()

    async def ended(self) -> None:
        """Wait until all that was started has ended."""
        if self._under_way:
            await asyncio.wait([*self._under_way])
