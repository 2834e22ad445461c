"""All topologies of all state managers, kept up to date by watches.

Each state manager is followed by a task of its own with threads of its own, so that one that hangs holds up no other.
While one does not answer, what it last said is still served, with the reason beside it.

Each topology is a failure domain of its own: its state is read in a thread, within limits; one that cannot be read is
listed with the reason (`damaged`), and the others do not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from heron_tracker._config import StateManagerConfig
from heron_tracker._folder import FolderWatch
from heron_tracker._topology import KINDS, Key, Topology, assemble
from heronpy.errors import HeronError, NotFoundError, UnavailableError, UsageError, nearest
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import FileStateManager, Kind, StateManager, Watch, container_node, on_loop, open_statemgr

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_TIMEOUT_S = 4.0
RETRY_S = 2.0
CHECK_S = 10.0
"""How often a state manager is listed without a notification of change, to notice that it is unreachable."""
THREADS = 2
WATCHES_MAX = 60_000
"""Most watches of one state manager."""
_FILES_POLL_S = 0.25
_CLOSE_S = 5.0
_ERROR_MAX = 500


@dataclass(slots=True)
class _Followed:
    """The nodes of one topology of one state manager."""

    values: dict[Kind, bytes | None] = field(default_factory=dict)
    watches: list[Watch] = field(default_factory=list)
    topology: Topology | None = None
    error: str | None = None
    """Why its state cannot be read; None if it can."""


class Follower:
    """Follows one state manager."""

    def __init__(self, config: StateManagerConfig, changed: Callable[[], None]) -> None:
        self.config = config
        self.error: str | None = "it has not answered yet"
        """Why it is unreachable; None while it answers."""
        self.since_s = time.time()
        """When that began or ended, in seconds since the epoch."""
        self._changed = changed
        self._followed: dict[str, _Followed] = {}
        self._changed_names: set[str] = set()
        self._wake = asyncio.Event()
        self._listing_due = True
        self._asked = asyncio.Event()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"statemgr-{config.name}")
        self._state: StateManager | None = None

    @property
    def topologies(self) -> list[Topology]:
        return [followed.topology for followed in self._followed.values() if followed.topology is not None]

    @property
    def damaged(self) -> dict[str, str]:
        """The topologies whose state cannot be read, and why. What was known of them before is still served."""
        return {name: followed.error for name, followed in self._followed.items() if followed.error is not None}

    @property
    def watches(self) -> int:
        return sum(len(followed.watches) for followed in self._followed.values())

    async def answered(self) -> None:
        """Wait for the first attempt to list it, successful or not."""
        await self._asked.wait()

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                try:
                    await self._session()
                except HeronError as e:
                    self._report(str(e))
                except Exception as e:
                    # Whatever one state manager (or its client) does: the others go on, and this one is reported.
                    log.exception("state manager %s", self.config.name)
                    self._report(f"unexpected {type(e).__name__}: {e}")
                self._asked.set()
                await asyncio.sleep(RETRY_S)
        finally:
            await self._end()

    async def _session(self) -> None:
        spec = self.config.spec
        if spec.type == "file" and not await self._call(_directory_exists, spec.root):
            self._forget(self._followed)  # nothing was ever submitted; looking must not make directories
            self._report(None)
            return
        if self._state is None:
            self._state = await self._call(_open, spec)
        folder = FolderWatch(self._state, spec, Kind.EXECUTIONSTATE, on_loop(self._list_again))
        self._listing_due = True
        try:
            while True:
                self._wake.clear()
                if self._listing_due:
                    self._listing_due = False
                    await self._look()
                    self._report(None)
                    self._asked.set()
                await self._assemble_changed()
                try:
                    async with asyncio.timeout(CHECK_S):
                        await self._wake.wait()
                except TimeoutError:
                    self._listing_due = True
        finally:
            await self._call(folder.close)

    async def read(self, kind: Kind, node: str) -> bytes | None:
        """A node that is not followed. Raises UnavailableError if the state manager does not answer in time."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                if self._state is None:
                    raise UnavailableError(f"state manager {self.config.name} does not answer: {self.error}")
                return await self._call(self._state.get, kind, node)
        except TimeoutError:
            raise UnavailableError(f"state manager {self.config.name} does not answer") from None

    def _list_again(self) -> None:
        self._listing_due = True
        self._wake.set()

    async def _look(self) -> None:
        """Watch new topologies and drop those that are gone."""
        assert self._state is not None
        names = await self._call(self._state.list, Kind.EXECUTIONSTATE)
        self._forget([name for name in self._followed if name not in set(names)])
        for name in names:
            if name not in self._followed and self.watches + len(KINDS) <= WATCHES_MAX:
                await self._follow(self._state, name)

    async def _follow(self, state: StateManager, name: str) -> None:
        followed = _Followed()
        try:
            for kind in KINDS:
                followed.values[kind] = await self._call(state.get, kind, name)
            self._followed[name] = followed
            await self._assemble(name, followed)
            for kind in KINDS:
                notify = on_loop(functools.partial(self._on_value, name, followed, kind))
                followed.watches.append(await self._call(state.watch, kind, name, notify))
        except UsageError:
            return  # somebody else's node, whose name no topology can have
        except BaseException:
            self._forget([name])
            raise

    def _on_value(self, name: str, followed: _Followed, kind: Kind, value: bytes | None) -> None:
        if self._followed.get(name) is not followed or followed.values.get(kind) == value:
            return
        followed.values[kind] = value
        self._changed_names.add(name)
        self._wake.set()

    async def _assemble_changed(self) -> None:
        while self._changed_names:
            name = self._changed_names.pop()
            if (followed := self._followed.get(name)) is not None:
                await self._assemble(name, followed)

    async def _assemble(self, name: str, followed: _Followed) -> None:
        error, found = None, followed.topology
        try:
            found = await asyncio.to_thread(
                assemble, self.config.name, dict(followed.values), followed.topology, time.time()
            )
        except Exception as e:
            # Whatever is in a topology's state: the others are served on.
            error = f"{type(e).__name__}: {e}"[:_ERROR_MAX]
            log.warning("the state of topology %s in %s cannot be read: %s", name, self.config.name, error)
        if (error, found) != (followed.error, followed.topology):
            followed.error, followed.topology = error, found
            self._changed()

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            if followed := self._followed.pop(name, None):
                for watch in followed.watches:
                    self._threads.submit(watch.cancel)
                self._changed()

    def _report(self, error: str | None) -> None:
        if (error is None) != (self.error is None):
            self.since_s = time.time()
            if error is not None:
                log.warning("state manager %s: %s", self.config.name, error)
            self._changed()
        self.error = error

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def _end(self) -> None:
        if self._state is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.to_thread(self._state.close)
        self._threads.shutdown(wait=False, cancel_futures=True)


class Directory:
    """The topologies of several state managers."""

    def __init__(self, statemgrs: Iterable[StateManagerConfig]) -> None:
        self._listeners: list[Callable[[], None]] = []
        self.followers = [Follower(config, self._changed) for config in statemgrs]
        self._found: dict[Key, Topology] | None = None

    async def run(self) -> None:
        """Follow all of them until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for follower in self.followers:
                tasks.create_task(follower.run(), name=f"tracker/{follower.config.name}")

    async def answered(self, within_s: float) -> None:
        """Wait for the first attempt to list every state manager, for a bounded time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(*(follower.answered() for follower in self.followers))

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function, on the event loop, after every change."""
        self._listeners.append(listener)

    @property
    def topologies(self) -> dict[Key, Topology]:
        """All of them, sorted. Of two with the same names, the one that was submitted last."""
        if self._found is None:
            found: dict[Key, Topology] = {}
            for topology in sorted(
                (t for follower in self.followers for t in follower.topologies),
                key=lambda t: (t.key, t.execution.submission_time_s),
            ):
                found[topology.key] = topology
            self._found = found
        return self._found

    @property
    def clusters(self) -> list[str]:
        """The names of the state managers, and the clusters of their topologies."""
        return sorted({*(f.config.name for f in self.followers), *(key.cluster for key in self.topologies)})

    def find(self, cluster: str, environ: str, name: str, role: str | None = None) -> Topology:
        """The topology of this name.

        Raises:
            NotFoundError: there is none; names the nearest, and state managers that do not answer.
            UsageError: there are several, of different roles.
        """
        found = [
            topology
            for key, topology in self.topologies.items()
            if (key.cluster, key.environ, key.name) == (cluster, environ, name) and role in (None, "", key.role)
        ]
        if len(found) > 1:
            roles = ", ".join(topology.key.role for topology in found)
            raise UsageError(f"topology {name} runs in {cluster}/{environ} with the roles {roles}: name the role")
        if not found:
            raise NotFoundError(
                f"no topology {name!r} in {cluster}/{role + '/' if role else ''}{environ}{self._hint(name)}"
            )
        return found[0]

    async def container_record(self, topology: Topology, container: int) -> bytes | None:
        """The record of a container. Raises UnavailableError if the topology's state manager does not answer."""
        follower = next(f for f in self.followers if f.config.name == topology.statemgr)
        return await follower.read(Kind.CONTAINERS, container_node(topology.key.name, container))

    def _hint(self, name: str) -> str:
        elsewhere = [key for key in self.topologies if key.name == name]
        near = f"; it runs as {elsewhere[0]}" if elsewhere else nearest(name, [key.name for key in self.topologies])
        damaged = next((f.damaged[name] for f in self.followers if name in f.damaged), None)
        if damaged is not None:
            return f"; there is one in the state manager, but its state cannot be read: {damaged}"
        silent = [f"{f.config.name} ({f.error})" for f in self.followers if f.error]
        return near + (f"; state managers that do not answer: {', '.join(silent)}" if silent else "")

    def _changed(self) -> None:
        self._found = None
        for listener in self._listeners:
            listener()


def _directory_exists(root: str) -> bool:
    return os.path.isdir(root)


def _open(spec: StatemgrSpec) -> StateManager:
    if spec.type == "file":
        return FileStateManager(spec.root, call_timeout_s=CALL_TIMEOUT_S, poll_interval_s=_FILES_POLL_S)
    return open_statemgr(spec, call_timeout_s=CALL_TIMEOUT_S)
