"""The launch values and credentials of topologies: their own directories', or those that clusters hand over.

What a cluster hands over is kept in a directory of this process, for this user alone, and removed when the topology is
gone or the Tracker ends; what a killed Tracker has left is removed at the next start. A cluster may hang: so it is
asked in daemon threads, of which each cluster has a few, callers wait for a bounded time, and an answer that is too
late is dropped.

Handed over is the authority of the topology. Of it the Tracker keeps the token and a certificate for itself, and, where
actions are allowed, one for commands. Of the launch values it keeps none that names a place to read from or a thing to
remove: packages, checkpoints, stored logs. A topology without certificates is not adopted: only the state manager says
where its processes are, and they could not prove who they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import heron_scheduler
from msgspec import structs

from heron_tracker._adoption import CERTIFICATE_DAYS, Adoption, cluster_of
from heron_tracker._config import AdoptedCluster, TrackerConfig
from heron_tracker._topology import Identity, Topology
from heron_tracker._trust import trusted_launch
from heronpy.config import KIB
from heronpy.errors import ConfigError, HeronError, StateError, UnavailableError, UntrustedError
from heronpy.runtime import TOKEN_FILE, Launch, StatemgrSpec
from heronpy.security import CA_FILE, CLI, TRACKER, private_directory, write_secret

log = logging.getLogger(__name__)

ATTEMPT_S = 130.0
"""A cluster that has not answered for so long is said to hang: longer than the timeouts of all schedulers here."""
WAIT_S = 3.0
"""Callers wait for so long after an attempt began."""
THREADS_PER_CLUSTER_MAX = 4
"""Most attempts at a time; those that hang count."""
ADOPTED_MAX = 1000
"""Most topologies that have credentials here."""
REPORTED_MAX = 100
"""Most clusters that are logged because they are not configured."""
_LOOK_S = 1.0
_REASON_MAX = 500
_TOKEN = re.compile(rf"[\x21-\x7e]{{1,{4 * KIB}}}")
_LOCK = ".lock"
_KEY_FILE = "tls/authority/ca-key.pem"

Fetched = tuple[Launch, Mapping[str, bytes]]
"""Launch values, and files by their paths below the topology's directory."""


@dataclass(slots=True)
class _Entry:
    """One topology that has no directory here."""

    topology: Topology
    cluster: AdoptedCluster
    directory: Path
    adoption: Adoption = field(default_factory=Adoption)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no attempt is under way."""


class Credentials:
    """The launch values and credentials of all topologies that may be asked from here."""

    def __init__(self, config: TrackerConfig, renewed: Callable[[Topology], None] = lambda topology: None) -> None:
        """Read none yet.

        Args:
            config: Of the Tracker.
            renewed: Called with a topology that has other credentials than before: connections with those are to end.
        """
        self._clusters = config.adopt
        self._home = config.adopt_directory
        self._actions = config.actions
        self._specs = {one.name: one.spec for one in config.statemgrs}
        self._renewed = renewed
        self._own: Path | None = None
        self._entries: dict[Identity, _Entry] = {}
        self._numbers = itertools.count(1)
        self._slots = {one.name: asyncio.Semaphore(THREADS_PER_CLUSTER_MAX) for one in self._clusters}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone: list[Path] = []
        self._wake = asyncio.Event()
        self._off: set[str] = set()

    async def launch(self, topology: Topology) -> Launch:
        """The launch values, in a directory with credentials. Returns within WAIT_S and the time of the own disk.

        Raises:
            UnavailableError: there are none here, and the cluster has not handed them over; says why.
        """
        try:
            return await asyncio.to_thread(trusted_launch, topology)
        except UnavailableError as own:
            entry = self._entry(topology, own)
        now_s, adoption = time.monotonic(), entry.adoption
        if adoption.expired(now_s):
            self._forget(entry)
        if adoption.due(now_s):
            self._begin(entry)
        if adoption.launch is None and adoption.began_s is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(adoption.began_s + WAIT_S - now_s):
                    await entry.done.wait()
        return self._known(entry)

    def known(self, topology: Topology) -> Launch:
        """The same without waiting for a cluster. May be called from any thread.

        Raises:
            UnavailableError: there are none here, or not yet; says why.
        """
        try:
            return trusted_launch(topology)
        except UnavailableError:
            entry = self._entries.get(topology.identity)
            if entry is None:
                raise
            return self._known(entry)

    def is_adopted(self, launch: Launch) -> bool:
        """Whether its credentials are from a cluster."""
        return self._own is not None and launch.dir.parent == self._own

    def keep(self, topologies: Iterable[Topology]) -> None:
        """Remove the credentials of all topologies but these."""
        if not self._entries:
            return
        kept = {topology.identity: topology for topology in topologies}
        for id in self._entries.keys() - kept.keys():
            self._remove(self._entries.pop(id).directory)
        for id, entry in self._entries.items():
            entry.topology = kept[id]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the directory for the duration of the block, and renew what is in it.

        Raises:
            ConfigError: it cannot be made, or is another user's.
        """
        if not self._clusters:
            yield
            return
        assert self._home is not None, "where credentials are kept"
        with contextlib.ExitStack() as stack:
            self._own = await asyncio.to_thread(_own_directory, self._home, stack)
            renewing = asyncio.create_task(self._renew(), name="tracker/credentials")
            try:
                yield
            finally:
                self._entries.clear()
                tasks = [renewing, *self._tasks]
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                await asyncio.to_thread(shutil.rmtree, self._own, ignore_errors=True)

    async def _renew(self) -> None:
        while True:
            self._wake.clear()
            while self._gone:
                await asyncio.to_thread(shutil.rmtree, self._gone.pop(), ignore_errors=True)
            now_s = time.monotonic()
            for entry in self._entries.values():
                if entry.adoption.launch is not None and entry.adoption.due(now_s):
                    self._begin(entry)
                if entry.adoption.expired(now_s):
                    self._forget(entry)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._wake.wait()

    def _entry(self, topology: Topology, own: UnavailableError) -> _Entry:
        if (found := self._entries.get(topology.identity)) is not None:
            return found
        try:
            cluster = cluster_of(topology, self._specs[topology.statemgr], self._clusters)
        except UnavailableError as e:
            why = UnavailableError(f"{own}; {e}")
            self._report_off(topology, why)
            raise why from own
        if self._own is None:
            raise UnavailableError(f"{own}; this Tracker starts or ends") from own
        found = _Entry(topology, cluster, self._directory())
        self._entries[topology.identity] = found
        return found

    def _report_off(self, topology: Topology, why: UnavailableError) -> None:
        """Once for each cluster: that is the operator's to decide, and no topology's."""
        cluster = topology.key.cluster
        if cluster not in self._off and len(self._off) < REPORTED_MAX:
            self._off.add(cluster)
            log.warning("no health, metrics and logs of %s: %s", topology.key, why)

    def _known(self, entry: _Entry) -> Launch:
        if entry.adoption.launch is not None:
            return entry.adoption.launch
        why = entry.adoption.reason or "has not handed over its credentials yet"
        raise UnavailableError(
            f"topology {entry.topology.key.name} cannot be asked from here: cluster {entry.cluster.name} {why}"
        )

    def _forget(self, entry: _Entry) -> None:
        """The cluster does not hand them over any more, and they are of no use."""
        entry.adoption.launch = None
        self._remove(entry.directory)
        entry.directory = self._directory()
        self._renewed(entry.topology)

    def _directory(self) -> Path:
        assert self._own is not None
        return self._own / str(next(self._numbers))

    def _begin(self, entry: _Entry) -> None:
        entry.adoption.began(time.monotonic())
        entry.done.clear()
        task = asyncio.create_task(self._attempt(entry), name=f"tracker/adopt/{entry.topology.key.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(self, entry: _Entry) -> None:
        adoption, name = entry.adoption, entry.topology.key.name
        try:
            async with asyncio.timeout(ATTEMPT_S):
                launch, files = await self._read(entry)
            await asyncio.to_thread(_write, launch.dir, files)
        except (HeronError, TimeoutError, RuntimeError) as e:  # the last: there is no thread to be had
            timed_out = isinstance(e, TimeoutError)
            why = f"has not answered for {ATTEMPT_S:g} s" if timed_out else f"does not hand over its credentials: {e}"
            why = "".join(c if c.isprintable() else "?" for c in why[:_REASON_MAX])
            if adoption.failed(why, time.monotonic()):
                log.warning("topology %s is not adopted: cluster %s %s", name, entry.cluster.name, adoption.reason)
        else:
            adoption.succeeded(launch, time.monotonic())
            if self._entries.get(entry.topology.identity) is entry:
                self._renewed(entry.topology)
                log.info("topology %s is adopted from cluster %s", entry.topology.id, entry.cluster.name)
        finally:
            entry.done.set()
            if self._entries.get(entry.topology.identity) is not entry:
                self._remove(entry.directory)  # the topology went away meanwhile, maybe while this was written

    def _remove(self, directory: Path) -> None:
        self._gone.append(directory)
        self._wake.set()

    async def _read(self, entry: _Entry) -> Fetched:
        """Ask in a thread of the cluster, which is given up, not ended, if this is cancelled."""
        adopted = sum(one.adoption.launch is not None for one in self._entries.values())
        if entry.adoption.launch is None and adopted >= ADOPTED_MAX:
            raise UnavailableError(f"this Tracker has those of {ADOPTED_MAX} topologies, which are the most")
        slots = self._slots[entry.cluster.name]
        await slots.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Fetched] = loop.create_future()
        topology, directory, spec = entry.topology, entry.directory, self._specs[entry.topology.statemgr]

        def ended(result: Fetched | HeronError) -> None:
            slots.release()
            if answer.done():
                return  # too late
            if isinstance(result, HeronError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def work() -> None:
            result: Fetched | HeronError = UnavailableError("the attempt ended unexpectedly")
            try:
                result = fetch(topology, spec, entry.cluster, directory, commands=self._actions)
            except HeronError as e:
                result = e
            except Exception as e:  # of a scheduler, or of what it was handed: to the caller, without its content
                result = UnavailableError(f"unexpected {type(e).__name__}")
                log.debug("cluster %s: %s", entry.cluster.name, result, exc_info=True)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed: the Tracker ends
                    loop.call_soon_threadsafe(ended, result)

        try:
            threading.Thread(target=work, name=f"tracker-adopt-{entry.cluster.name}", daemon=True).start()
        except RuntimeError:
            slots.release()
            raise
        return await answer


def fetch(
    topology: Topology, spec: StatemgrSpec, cluster: AdoptedCluster, directory: Path, *, commands: bool
) -> Fetched:
    """Have a cluster hand over a topology's credentials. Nothing is written.

    Args:
        topology: As the state manager says: only its names are taken from there.
        spec: That state manager.
        cluster: As the operator has configured it.
        directory: Where they will be kept.
        commands: Whether to make a certificate for commands, too.

    Returns:
        The launch values, and what a Tracker needs of the files, by their paths below the directory.

    Raises:
        HeronError: it does not, or what it hands over is damaged, or of another topology.
    """
    key = topology.key
    asked = Launch(
        topology=key.name,
        topology_id=topology.id,
        cluster=key.cluster,
        role=key.role,
        environ=key.environ,
        statemgr=spec,
        dir=directory,
        scheduler=cluster.scheduler,
        scheduler_config=cluster.scheduler_config,
    )
    bootstrap = heron_scheduler.read_bootstrap(asked)
    theirs = bootstrap.place(directory)
    token = bootstrap.files.get(TOKEN_FILE, "").strip()
    if not _TOKEN.fullmatch(token):
        raise UntrustedError("its token is damaged")
    if not theirs.config.security.tls:
        raise UntrustedError("it has no certificates by which its processes could prove themselves")
    files = {TOKEN_FILE: token.encode(), **_certificates(topology.id, bootstrap.files, commands=commands)}
    logging = structs.replace(theirs.config.logging, upload_uri="")
    config = structs.replace(theirs.config, logging=logging)
    return replace(asked, config=config, origins=theirs.origins), files


def _certificates(topology_id: str, files: Mapping[str, str], *, commands: bool) -> dict[str, bytes]:
    from heronpy.security import authority  # here: most Trackers make none

    try:
        key, ca = files[_KEY_FILE].encode(), files[f"tls/{CA_FILE}"].encode()
    except (KeyError, UnicodeEncodeError) as e:
        raise UntrustedError("there are no certificates in it") from e
    found = {f"tls/{CA_FILE}": ca}
    for identity in (TRACKER, CLI) if commands else (TRACKER,):
        found[f"tls/{identity}.pem"] = authority.issued(key, ca, topology_id, identity, days=CERTIFICATE_DAYS)
    return found


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Put them there, for this user alone; what is there already is replaced."""
    try:
        private_directory(directory)
        private_directory(directory / "tls")
        for name, content in files.items():
            write_secret(directory / name, content)
    except OSError as e:
        raise StateError(f"{e.filename or directory} cannot be written: {e.strerror}") from e


def make_directory(home: Path) -> None:
    """Make the directory that those of all Trackers are in.

    Raises:
        ConfigError: it cannot be made, or is another user's.
    """
    try:
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private_directory(home)
    except (OSError, UntrustedError) as e:
        raise ConfigError(f"the Tracker cannot keep credentials in {home}: {e}") from e


def _own_directory(home: Path, stack: contextlib.ExitStack) -> Path:
    """A directory of this process, locked until the stack is closed. Those that nobody has locked are removed."""
    make_directory(home)
    try:
        with _locked(home / _LOCK):
            for found in home.iterdir():
                if found.is_dir() and not found.is_symlink() and _is_free(found / _LOCK):
                    shutil.rmtree(found, ignore_errors=True)
            own = Path(tempfile.mkdtemp(dir=home, prefix=f"{os.getpid()}-"))
            stack.enter_context(_locked(own / _LOCK))
        return own
    except OSError as e:
        raise ConfigError(f"the Tracker cannot keep credentials in {home}: {e}") from e


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_free(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True  # it was killed before it had locked it
    except OSError as e:
        log.warning("%s stays: %s", path.parent, e.strerror)  # it may be of one that lives
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False  # of one that lives
    finally:
        os.close(fd)
