"""Who is asked about a container: its heron-shell, or this host's own files.

The container's record in the state manager names its heron-shell. Where it names none, its files are looked for on this
host, as they are there when the scheduler's containers share the submitter's files. One that does not answer costs the
first callers a call's timeout; then its circuit is open, see `_circuit_breaker`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from heron_tracker._circuit_breaker import CircuitBreaker
from heron_tracker._tmasters import iso_time
from heron_tracker._topology import Identity, Topology
from heron_tracker._trust import LaunchOf, check_address
from heronpy.address import split_address
from heronpy.errors import HeronError, NotFoundError, UnavailableError, nearest
from heronpy.proto import shell_pb2, state_pb2
from heronpy.security import TRACKER
from heronpy.shell import Container, FileThreads, LocalShell, NotHereError, Shell
from heronpy.shell.client import RemoteShell, ShellUnreachableError
from heronpy.shell.stored import StoredLogs
from heronpy.statemgr import container_record

T = TypeVar("T")

RECORD_AGE_S = 2.0
"""A record that is not older is not read again."""
PROBE_WAIT_S = 0.5
"""How long the caller that starts a probe waits for it."""
LINKS_MAX = 256
CALLS_PER_SHELL_MAX = 8


@dataclass(slots=True)
class _Link:
    """What is kept for one container."""

    number: int
    calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_PER_SHELL_MAX))
    record: state_pb2.ContainerRecord = field(default_factory=state_pb2.ContainerRecord)
    read_s: float = float("-inf")
    """When the record was read; of the monotonic clock."""
    unread: str = ""
    """Why the record cannot be read now; empty: it can."""
    shell: RemoteShell | None = None
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    probe: asyncio.Task[None] | None = None
    busy: int = 0


class Shells:
    """The containers of all topologies, as one can ask them."""

    def __init__(self, launch_of: LaunchOf, read_record: Callable[[Topology, int], Awaitable[bytes | None]]) -> None:
        """Make no call yet.

        Args:
            launch_of: Returns a topology's launch values, with its credentials. Raises UnavailableError.
            read_record: Reads the record of a container from the state manager.
        """
        self._launch_of, self._read_record = launch_of, read_record
        self._links: OrderedDict[tuple[Identity, int], _Link] = OrderedDict()
        self._gone: list[_Link] = []  # to be closed by the next one who may wait
        self._profiled: set[tuple[str, str]] = set()
        self._stored: dict[tuple[Identity, int], StoredLogs] = {}
        # Apart: a log store that is away holds up no file of this host.
        self._files, self._storages = FileThreads(), FileThreads()

    def of(self, topology: Topology, container: int) -> Shell:
        """What can be asked about a container; of one that the topology does not have any more, its stored logs."""
        known = topology.containers()
        missing = None
        if container not in known:
            missing = NotFoundError(
                f"topology {topology.key.name} has no container {container}: it has {known[0]} to {known[-1]}"
            )
        return _ContainerShell(self, topology, container, missing)

    def of_process(self, topology: Topology, process: str) -> Shell:
        """The same for the container of an instance or a Stream Manager. Raises NotFoundError: there is no such."""
        known = topology.processes()
        if process not in known:
            raise NotFoundError(f"topology {topology.key.name} has no instance {process!r}{nearest(process, known)}")
        return self.of(topology, known[process])

    def here(self, topology: Topology, container: int) -> LocalShell:
        """The container, if its files are on this host."""
        place = Container(topology.key.name, topology.id, container, topology.directory)
        return LocalShell(place, profiled=self._profiled, files=self._files)

    def incarnation(self, topology: Topology, container: int) -> int:
        """The last known incarnation of a container; 0: none is known."""
        link = self._links.get((topology.identity, container))
        return link.record.incarnation if link is not None else 0

    async def stored(self, topology: Topology, container: int) -> StoredLogs | None:
        """The stored log files of a container; None if the topology stores none, or its configuration is not here."""
        key = (topology.identity, container)
        if key not in self._stored:
            try:
                uri = (await self._launch_of(topology)).config.logging.upload_uri
            except UnavailableError:
                return None
            if not uri:
                return None
            place = Container(topology.key.name, topology.id, container, topology.directory)
            self._stored[key] = await asyncio.to_thread(StoredLogs, uri, place, self._storages)
            while len(self._stored) > LINKS_MAX:
                del self._stored[next(iter(self._stored))]
        return self._stored[key]

    def keep(self, topologies: Iterable[Topology]) -> None:
        """Drop the containers of all topologies but these."""
        kept = {topology.identity for topology in topologies}
        for key in [key for key in self._links if key[0] not in kept]:
            self._gone.append(self._links.pop(key))
        for key in [key for key in self._stored if key[0] not in kept]:
            del self._stored[key]

    def forget(self, topology: Topology) -> None:
        """Connect anew: the topology has other credentials."""
        for key in [key for key in self._links if key[0] == topology.identity]:
            self._gone.append(self._links.pop(key))

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        self.keep(())
        await self._close_gone()

    async def ask(
        self, topology: Topology, container: int, call: Callable[[Shell], Awaitable[T]]
    ) -> tuple[T | None, str]:
        """Make a call of a container's heron-shell. None where it is known to have none, with the reason in words.

        Raises:
            ShellUnreachableError: it does not answer; says since when, and why.
            HeronError: its own answer is an error.
        """
        link = await self._link(topology, container)
        link.busy += 1
        try:
            await self._refresh(link, topology)
            endpoint = link.record.shell_endpoint
            if not endpoint:
                where = f"it runs on {link.record.host}, and " if link.record.host else ""
                return None, link.unread or f"{where}it has no heron-shell (heron.shell.enabled)"
            shell = await self._connected(link, topology, endpoint)
            await self._admit(link, shell)
            async with link.calls:
                return await self._call(link, endpoint, call(shell)), ""
        finally:
            link.busy -= 1

    async def _link(self, topology: Topology, container: int) -> _Link:
        key = (topology.identity, container)
        link = self._links.setdefault(key, _Link(container))
        self._links.move_to_end(key)
        idle = [key for key, link in self._links.items() if not link.busy]
        for old in idle[: max(0, len(self._links) - LINKS_MAX)]:
            self._gone.append(self._links.pop(old))
        await self._close_gone()
        return link

    async def _close_gone(self) -> None:
        while self._gone:
            link = self._gone.pop()
            if link.probe is not None:
                link.probe.cancel()
                await asyncio.wait({link.probe})
            if link.shell is not None:
                await link.shell.close()

    async def _refresh(self, link: _Link, topology: Topology) -> None:
        """Read the record again if it is old. While the state manager does not answer, the last one is taken."""
        if time.monotonic() - link.read_s < RECORD_AGE_S:
            return
        try:
            record = container_record(await self._read_record(topology, link.number))
        except HeronError as e:
            link.unread = f"its record in the state manager cannot be read: {e}"
            return
        if record.topology_id not in ("", topology.id):
            record = state_pb2.ContainerRecord()  # of an earlier topology of this name
        link.record, link.read_s, link.unread = record, time.monotonic(), ""

    async def _connected(self, link: _Link, topology: Topology, endpoint: str) -> RemoteShell:
        link.breaker.located(endpoint)
        if link.shell is None or link.shell.endpoint != endpoint:
            launch = await self._launch_of(topology)
            security = await asyncio.to_thread(launch.security, TRACKER)
            host, _ = split_address(endpoint)
            who = f"the heron-shell of container {link.number}"
            check_address(topology, host, proves_itself=security.tls is not None, who=who)
            old = link.shell
            if old is None or old.endpoint != endpoint:  # else another caller has done it meanwhile
                link.shell = RemoteShell(endpoint, security, link.number)
                if old is not None:
                    await old.close()
        assert link.shell is not None
        return link.shell

    async def _admit(self, link: _Link, shell: RemoteShell) -> None:
        """Return if it can be called. Raises ShellUnreachableError, at once while the circuit is open."""
        if not link.breaker.open:
            return
        if link.breaker.may_probe(time.monotonic()):
            link.breaker.probing = True
            link.probe = asyncio.create_task(self._probe(link, shell), name=f"tracker/probe-shell/{link.number}")
            await asyncio.wait({link.probe}, timeout=PROBE_WAIT_S)
        if link.breaker.open:
            raise self._unreachable(link)

    async def _probe(self, link: _Link, shell: RemoteShell) -> None:
        try:
            await self._call(link, shell.endpoint, shell.processes())
        except HeronError:
            pass  # the breaker has it, or it has answered
        finally:
            link.breaker.probing = False

    async def _call(self, link: _Link, endpoint: str, answer: Awaitable[T]) -> T:
        try:
            reply = await answer
        except ShellUnreachableError as e:
            link.breaker.failed(endpoint, str(e), time.monotonic(), time.time())
            link.read_s = float("-inf")  # it may have moved
            raise self._unreachable(link) from e
        except HeronError:
            link.breaker.answered()
            raise
        except asyncio.CancelledError as e:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not this task: the connection was closed under the call, because there is a new address.
            raise self._unreachable(link) from e
        link.breaker.answered()
        return reply

    def _unreachable(self, link: _Link) -> ShellUnreachableError:
        since_s = link.breaker.since_s
        return ShellUnreachableError(
            f"its heron-shell at {link.record.shell_endpoint} does not answer since "
            f"{iso_time(since_s if since_s is not None else time.time())}: "
            f"{link.breaker.why or 'it has moved, ask again'}"
        )


class _ContainerShell:
    """One container, wherever it is."""

    def __init__(self, shells: Shells, topology: Topology, container: int, missing: NotFoundError | None) -> None:
        self._shells, self._topology, self._container = shells, topology, container
        self._missing = missing
        """Why there is nothing but stored logs."""

    async def files(self, path: str = ".") -> shell_pb2.FileList:
        return await self._file(lambda shell: shell.files(path))

    async def read(self, path: str, offset: int, length: int) -> shell_pb2.FilePart:
        return await self._file(lambda shell: shell.read(path, offset, length))

    async def search(self, request: shell_pb2.SearchRequest) -> shell_pb2.SearchReply:
        return await self._file(lambda shell: shell.search(request))

    async def processes(self) -> shell_pb2.ProcessList:
        return await self._process(lambda shell: shell.processes())

    async def look(self, kind: str, process: str) -> shell_pb2.LookReply:
        return await self._process(lambda shell: shell.look(kind, process))

    async def profile(self, process: str, seconds: float) -> shell_pb2.ProcessProfile:
        return await self._process(lambda shell: shell.profile(process, seconds))

    async def _file(self, call: Callable[[Shell], Awaitable[T]]) -> T:
        """By its heron-shell, or else on this host's disk; of a container that has ended, in the log store."""
        error: HeronError | None = self._missing
        if error is None:
            try:
                return await self._live_file(call)
            except (NotHereError, ShellUnreachableError) as e:
                error = e
        if (stored := await self._shells.stored(self._topology, self._container)) is not None:
            incarnation = self._shells.incarnation(self._topology, self._container)
            # One whose last incarnation has stored nothing runs, as far as anybody knows: old logs are not its logs.
            with contextlib.suppress(NotFoundError):
                if self._missing is not None or not incarnation or await stored.has(incarnation):
                    return await call(stored)
        raise error

    async def _live_file(self, call: Callable[[Shell], Awaitable[T]]) -> T:
        try:
            answer, why = await self._shells.ask(self._topology, self._container, call)
            if answer is not None:
                return answer
            silent = None
        except ShellUnreachableError as e:
            silent, why = self._silent(e), ""
        try:
            return await call(self._shells.here(self._topology, self._container))
        except NotHereError as e:
            raise silent or NotHereError(f"{e}: {why}") from None

    async def _process(self, call: Callable[[Shell], Awaitable[T]]) -> T:
        if self._missing is not None:
            raise self._missing
        try:
            answer, why = await self._shells.ask(self._topology, self._container, call)
        except ShellUnreachableError as e:
            raise self._silent(e) from e
        if answer is not None:
            return answer
        try:
            return await call(self._shells.here(self._topology, self._container))
        except NotHereError as e:
            raise NotHereError(f"{e}: {why}") from None

    def _silent(self, error: ShellUnreachableError) -> ShellUnreachableError:
        return ShellUnreachableError(f"container {self._container} of {self._topology.key.name} is silent: {error}")
