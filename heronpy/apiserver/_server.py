"""What the routes share: who may do what, one after the other, and written down."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import Request

from heronpy.apiserver._actions import Actions
from heronpy.apiserver._audit import AuditLog
from heronpy.apiserver._config import ApiServerConfig
from heronpy.apiserver._guard import USER
from heronpy.apiserver._models import Done
from heronpy.apiserver._users import User, Users
from heronpy.errors import ForbiddenError, HeronError, UnavailableError

AT_ONCE_MAX = 8
"""Actions that run at once; more wait."""
UPLOADS_MAX = 2
"""Programs of one user that come in at once; more wait, and no other user for them."""

LOOKS_MAX = 2
"""Topologies whose status one user asks for at once; more wait."""


class Server:
    """What the routes share."""

    def __init__(self, config: ApiServerConfig) -> None:
        self.config = config
        self.users = Users(config.users_file)
        self.audit = AuditLog(config.audit_file, bytes_max=config.audit_bytes_max, files_max=config.audit_files_max)
        self.actions = Actions(config)
        self._uploads: dict[str, asyncio.Semaphore] = {}
        self._looks: dict[str, asyncio.Semaphore] = {}
        self._looking = ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="apiserver-look")
        # Threads of their own: actions wait for clusters, and would take those of read requests.
        self._threads = ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="apiserver-action")
        self._running: set[asyncio.Task[dict[str, Any]]] = set()

    def uploads(self, user: User) -> asyncio.Semaphore:
        """To be held while a program of a user comes in."""
        return self._uploads.setdefault(user.name, asyncio.Semaphore(UPLOADS_MAX))

    async def look(self, user: User, function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Ask a topology something for a user. It may be silent, which takes time: a user waits for few at once."""
        async with self._looks.setdefault(user.name, asyncio.Semaphore(LOOKS_MAX)):
            return await asyncio.get_running_loop().run_in_executor(self._looking, function)

    async def change(
        self,
        request: Request,
        action: str,
        role: str,
        topology: str,
        function: Callable[[], dict[str, Any]],
        after: Callable[[], None] = lambda: None,
    ) -> Done:
        """Do something for the user of a request, if it may; and write that down. Call `after` when it has ended.

        Raises:
            ForbiddenError: the user may not.
            UnavailableError: it is not done in time: it goes on. Or too many wait already: it was not started.
        """
        user: User = request.scope[USER]
        about = {
            "id": secrets.token_hex(8),
            "user": user.name,
            "access": user.access.name.lower(),
            "source": request.client.host if request.client else "",
            "action": action,
            "topology": topology,
        }
        if not user.may_change(role):
            await asyncio.to_thread(self.audit.record, **about, outcome="refused")
            raise ForbiddenError(f"user {user.name} may not {action} topologies of role {role}")
        if len(self._running) >= self.config.actions_max:
            after()
            raise UnavailableError(f"{action} of {topology} was not started: too many actions wait; try again later")
        task = asyncio.create_task(self._run(about, function, after), name=f"apiserver/{action}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        done, _ = await asyncio.wait({task}, timeout=self.config.action_within_s)
        if not done:
            within = f"{self.config.action_within_s:g} s"
            raise UnavailableError(f"{action} of {topology} is not done after {within}: it goes on")
        return Done(**task.result())

    async def _run(
        self, about: dict[str, Any], function: Callable[[], dict[str, Any]], after: Callable[[], None]
    ) -> dict[str, Any]:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._audited, about, function)
        finally:
            after()

    async def close(self) -> None:
        """Begin nothing more, wait for what was begun, and let another server have this HERON_HOME."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._running:
            await asyncio.wait(self._running)
        self._looking.shutdown(wait=False, cancel_futures=True)
        self.actions.close()

    def _audited(self, about: dict[str, Any], function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self.audit.record(**about, outcome="started")
        began_s = time.monotonic()
        try:
            result = function()
        except BaseException as e:
            status = e.http_status if isinstance(e, HeronError) else 500
            took = round(time.monotonic() - began_s, 3)
            error = " ".join(str(e).split()) if isinstance(e, HeronError) else type(e).__name__
            self.audit.record(**about, outcome="failed", status=status, error=error, seconds=took)
            raise
        if "name" in result:
            about["topology"] = "/".join(result[key] for key in ("cluster", "role", "environment", "name"))
        self.audit.record(**about, outcome="done", seconds=round(time.monotonic() - began_s, 3))
        return result
