"""What the routes share: who may do what, one after the other, and written down."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import Request

from heronpy.apiserver._actions import Actions
from heronpy.apiserver._audit import AuditLog
from heronpy.apiserver._config import ApiServerConfig
from heronpy.apiserver._guard import USER
from heronpy.apiserver._lanes import Lanes
from heronpy.apiserver._models import Done
from heronpy.apiserver._users import User, Users
from heronpy.errors import ForbiddenError, HeronError, StateError, UnavailableError

log = logging.getLogger(__name__)

T = TypeVar("T")

UPLOADS_MAX = 2
"""Programs of one user that come in at once; more wait, and no other user for them."""
LOOKS_MAX = 2
"""Lists, and states of topologies, that one user asks for at once; more wait, and no other user for them."""
_LOOKS_AT_ONCE_MAX = 8
STOP_ANSWER_S = 1.5
"""How long callers wait for their actions when the server stops: less than `heronpy.web.serve` waits for them."""


class Server:
    """What the routes share."""

    def __init__(self, config: ApiServerConfig) -> None:
        self.config = config
        self.users = Users(config.users_file)
        self.audit = AuditLog(config.audit_file, bytes_max=config.audit_bytes_max, files_max=config.audit_files_max)
        self.actions = Actions(config)
        self._uploads: dict[str, asyncio.Semaphore] = {}
        self._looks: dict[str, asyncio.Semaphore] = {}
        self._looking = ThreadPoolExecutor(_LOOKS_AT_ONCE_MAX, thread_name_prefix="apiserver-look")
        self._lanes = Lanes(config.actions_max)
        self._stopping = asyncio.Event()

    def uploads(self, user: User) -> asyncio.Semaphore:
        """To be held while a program of a user comes in."""
        return self._uploads.setdefault(user.name, asyncio.Semaphore(UPLOADS_MAX))

    async def look(self, user: User, function: Callable[[], T]) -> T:
        """Ask topologies something for a user. They may be silent, which takes time: a user waits for few at once.

        Raises:
            UnavailableError: the server stops.
        """

        async def asked() -> T:
            async with self._looks.setdefault(user.name, asyncio.Semaphore(LOOKS_MAX)):
                return await asyncio.get_running_loop().run_in_executor(self._looking, function)

        return await self.unless_it_stops(asked())

    async def unless_it_stops(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that need not go on when the server stops.

        Raises:
            UnavailableError: the server stops.
        """
        task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise UnavailableError("the server stops: ask again when it is back")
            return task.result()
        finally:
            for one in (task, stopping):
                one.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    async def change(
        self,
        request: Request,
        action: str,
        role: str,
        topology: str,
        function: Callable[[], dict[str, Any]],
        after: Callable[[], None] = lambda: None,
        **details: Any,
    ) -> Done:
        """Do something for the user of a request, if it may; and write that down. Call `after` when it has ended.

        Args:
            request: Whose user it is for.
            action: What it is called.
            role: Whose topology it is about.
            topology: Its place and name.
            function: Does it, and returns what `Done` has.
            after: Called also if it is refused.
            details: What the audit log says of it, besides.

        Raises:
            ForbiddenError: the user may not.
            UnavailableError: it is not done in time, or the server stops: it goes on. Or too many wait already: it was
                not started.
        """
        user: User = request.scope[USER]
        about = {
            "id": secrets.token_hex(8),
            "user": user.name,
            "access": user.access.name.lower(),
            "source": request.client.host if request.client else "",
            "action": action,
            "topology": topology,
            **{key: value for key, value in details.items() if value is not None},
        }
        if not user.may_change(role):
            await asyncio.to_thread(self.audit.record, **about, outcome="refused")
            raise ForbiddenError(f"user {user.name} may not {action} topologies of role {role}")
        try:
            task = self._lanes.start(user, action, lambda: self._audited(about, function), after)
        except UnavailableError as e:
            await asyncio.to_thread(self.audit.record, **about, outcome="refused", error=str(e))
            raise UnavailableError(f"{action} of {topology} was not started: {e}") from e
        await self._answerable(task)
        if task.cancelled():
            await asyncio.to_thread(self.audit.record, **about, outcome="refused", error="the server stops")
            raise UnavailableError(f"the server stops: {action} of {topology} was not started")
        if not task.done() and self._stopping.is_set():
            raise UnavailableError(f"the server stops; {action} of {topology} goes on: see `heron topologies` later")
        if not task.done():
            within = f"{self.config.action_within_s:g} s"
            raise UnavailableError(f"{action} of {topology} is not done after {within}: it goes on")
        return Done(**task.result())

    async def _answerable(self, task: asyncio.Task[dict[str, Any]]) -> None:
        """Wait for an action for as long as its caller may."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        both = (task, stopping)
        await asyncio.wait(both, timeout=self.config.action_within_s, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stopping.is_set():
            await asyncio.wait((task,), timeout=STOP_ANSWER_S)

    def stop(self) -> None:
        """Start nothing more, and answer all who wait. Call it on the event loop."""
        self._lanes.stop()
        self._stopping.set()

    async def close(self) -> None:
        """Stop, wait for what was started, and let another server have this HERON_HOME."""
        self.stop()
        await self._lanes.ended()
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
            self._record_outcome(**about, outcome="failed", status=status, error=error, seconds=took)
            raise
        if "name" in result:
            about["topology"] = "/".join(result[key] for key in ("cluster", "role", "environment", "name"))
        found = {"result": result["status"], "code": result.get("code") or None}
        about |= {key: value for key, value in found.items() if value is not None}
        self._record_outcome(**about, outcome="done", seconds=round(time.monotonic() - began_s, 3))
        return result

    def _record_outcome(self, **about: Any) -> None:
        """Of what has been done; the caller is to hear of that, whether or not it can be written down."""
        try:
            self.audit.record(**about)
        except StateError as e:
            log.error("%s; the outcome of action %s is not in it: %s", e, about["id"], about)
