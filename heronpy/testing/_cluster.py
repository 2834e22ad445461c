"""A cluster for tests: real processes on this machine, and nothing of it left afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from heron_scheduler import owned_by

from heronpy import loader, submit
from heronpy.config import FILES_MAX
from heronpy.errors import NotFoundError, UnavailableError, UsageError, nearest
from heronpy.host import EXECUTOR, HostProcess, read_pids, tail
from heronpy.runtime import Launch

if TYPE_CHECKING:
    from heronpy.api import TopologyBuilder
    from heronpy.proto import tmaster_pb2

T = TypeVar("T")

_POLL_S = 0.1
_STABLE_S = 0.25
_ANSWER_S = 60.0
"""Until a Topology Master answers: so long it may take to notice that it hangs, and to start another."""


class TopologyHandle:
    """A topology that was submitted to a `LocalCluster`.

    All methods block; in a coroutine call them through `asyncio.to_thread` if it has other things to do meanwhile.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        """Its directory, names and configuration."""

    @property
    def name(self) -> str:
        return self.launch.topology

    def status(self) -> tmaster_pb2.StatusReply:
        """What the Topology Master knows: state, Stream Managers, instances, and their metrics.

        Waits for one that is busy, or is just being started again.

        Raises:
            UnavailableError: the Topology Master does not answer.
        """
        return _patiently(submit.status, self.launch)

    def wait_running(self, within_s: float = 240.0) -> Self:
        """Wait until every Stream Manager is registered and every instance is attached to its own, and stays so.

        Raises:
            UnavailableError: not within `within_s`; says what is missing, and how its log ends.
        """
        deadline = time.monotonic() + within_s
        before: dict[str, int] = {}
        while True:
            now, missing = self._running()
            # An instance whose user code cannot start is attached for a moment too, each time it is started.
            if not missing and now == before:
                return self
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"topology {self.name} does not run after {within_s:g} s: "
                    f"{', '.join(missing) or 'processes come and go'}{self._last_words(missing)}"
                )
            before = {} if missing else now
            time.sleep(_POLL_S if missing else _STABLE_S)

    def activate(self) -> None:
        """Have the spouts emit."""
        _patiently(submit.activate, self.launch)

    def deactivate(self) -> None:
        """Have the spouts stop emitting."""
        _patiently(submit.deactivate, self.launch)

    def update(self, *, containers: int | None = None, timeout_s: float = 240.0, **tasks: int) -> None:
        """Change the number of tasks of components, by name, or of containers. Returns when all run by it.

        Raises:
            TopologyError: a number that cannot be.
            StateError: nothing was changed.
            UnavailableError: the Topology Master does not answer; or it was changed, and not all run in time.
        """
        home = self.launch.dir.parents[4]
        planned = _blocking(lambda: submit.plan_update(self.launch, tasks, containers, home=home))
        _blocking(lambda: submit.update(planned, timeout_s=timeout_s))

    def restart(self, container: int | None = None) -> None:
        """End the processes of one container, or of all, and start them again.

        Raises:
            NotFoundError: there is no such container.
        """
        _blocking(submit.restart, self.launch, container)

    def kill(self) -> None:
        """End the topology. On return no process, state, socket or file of it is left."""
        _blocking(submit.kill, self.launch)

    def processes(self) -> dict[str, int]:
        """The pid of every live process of its containers by process id.

        The ids are `executor-<n>`, `tmaster`, `stmgr-<n>`, `metricsmgr-<n>`, and those of the instances.
        """
        found: dict[str, int] = {}
        for directory in sorted(self.launch.dir.glob("container_*")):
            for id, record in read_pids(directory).items():
                if record.alive:
                    found[_process_id(directory, id)] = record.pid
        return found

    def logs(self, process: str) -> str:
        """Everything that a process has logged, and then what it has printed, as far as the files are kept.

        Args:
            process: an instance id, or another id that `processes` returns.

        Raises:
            NotFoundError: there is no such process, or it has written nothing yet.
        """
        files = self._log_files()
        if process not in files:
            raise NotFoundError(f"topology {self.name} has no log of {process!r}{nearest(process, files)}")
        return "".join(text for path in files[process] for text in _with_rotated(path))

    def _log_files(self) -> dict[str, list[Path]]:
        """By process id: .log, then .out."""
        files: dict[str, list[Path]] = {}
        for suffix in (".log", ".out"):
            for path in sorted(self.launch.dir.glob(f"container_*/log-files/*{suffix}")):
                files.setdefault(_process_id(path.parent.parent, path.stem), []).append(path)
        return files

    def _running(self) -> tuple[dict[str, int], list[str]]:
        """The pids of its instances, and the processes that are missing."""
        try:
            status = _blocking(submit.status, self.launch)
        except UnavailableError:
            return {}, ["tmaster"]
        alive = self.processes()
        missing = [s.location.id for s in status.stmgrs if not s.registered]
        missing += [i.id for i in status.instances if not i.attached or i.id not in alive]
        if not status.ready and not missing:
            missing = ["tmaster"]  # it has no physical plan yet
        return {i.id: alive[i.id] for i in status.instances if i.id in alive}, missing

    def _last_words(self, missing: Sequence[str]) -> str:
        """How the log of the last missing process ends: instances come last, and user code fails most often."""
        files = self._log_files()
        ends = [(path, tail(path)) for id in reversed(missing) for path in files.get(id, [])]
        return next((f"; the end of {path.name}:\n{end}" for path, end in ends if end), "")


class LocalCluster:
    """A cluster of this machine for the duration of a `with` block.

        with LocalCluster() as cluster:
            words = cluster.submit(WordCount).wait_running()
            ...

    Topologies run as they do in production, one process per task, with a home directory, a state manager and ports of
    their own, so that any number of clusters can exist at a time. All of it is gone when the block ends. It is also
    gone when this process is killed: its schedulers notice that and kill their topologies; only the home directory,
    then empty of topologies, stays below the temporary directory.

    Args:
        properties: configuration keys for all topologies, like `--config-property`.
    """

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        self._properties = dict(properties or {})
        self._home: Path | None = None

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="heron-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            for topology in self.topologies():
                with contextlib.suppress(NotFoundError):  # it was just killed by somebody else
                    topology.kill()
        finally:
            shutil.rmtree(self.home, ignore_errors=True)
            self._home = None

    @property
    def home(self) -> Path:
        """HERON_HOME of this cluster: `heron` with it in the environment sees the topologies too.

        Raises:
            UsageError: the block has not begun or has ended.
        """
        if self._home is None:
            raise UsageError("the cluster does not run: use `with LocalCluster() as cluster:`")
        return self._home

    def topologies(self) -> list[TopologyHandle]:
        """All topologies that run."""
        return [TopologyHandle(launch) for launch in _blocking(submit.running, self.home)]

    def submit(
        self,
        topology: TopologyBuilder | type[Any] | str | Path,
        cls: str = "-",
        *,
        args: Sequence[str] = (),
        name: str | None = None,
        files: Sequence[str | Path] = (),
        properties: Mapping[str, Any] | None = None,
        start_from: str | Path = "",
    ) -> TopologyHandle:
        """Submit a topology, as `heron submit` does. Returns when its scheduler runs; see `wait_running`.

        Args:
            topology: a Topology class, a TopologyBuilder, or the path of a file that `heron submit` would take.
            cls: for a path: the class in the file, or `-` to run the file as a script.
            args: for a path: the arguments of the script.
            name: a name for the topology instead of its own.
            files: files and directories that are to be in the topology's package too, beside its modules.
            properties: configuration keys for this topology.
            start_from: the URL of the checkpoint that it begins with, as with `--from`.

        Raises:
            AlreadyExistsError: a topology of this name runs.
            TopologyError: the topology is not valid.
            ConfigError: an unknown configuration key or a wrong value.
            UserCodeError: the code of the file failed.
        """
        definition = _blocking(_define, topology, cls, args, name)
        more = {Path(file).name: Path(file).absolute() for file in files}
        definition = dataclasses.replace(definition, sources={**definition.sources, **more})
        me = HostProcess.of(os.getpid())
        assert me is not None
        keys = {**self._properties, **(properties or {})}
        with owned_by(me):
            launch = _blocking(
                lambda: submit.submit(definition, home=self.home, properties=keys, start_from=str(start_from))
            )
        return TopologyHandle(launch)


def _define(
    topology: TopologyBuilder | type[Any] | str | Path, cls: str, args: Sequence[str], name: str | None
) -> loader.Definition:
    if isinstance(topology, str | Path):
        return loader.define(topology, cls, args, name=name)
    definition = loader.Definition.of(topology)
    if name is not None:
        definition.proto.name = name
    return definition


def _with_rotated(path: Path) -> list[str]:
    """What is in a log file and its rotated predecessors, the oldest first; each once, also while it rotates."""
    # The newest is opened first. A file that is renamed meanwhile has a higher number then, and is met again.
    texts: dict[int, str] = {}
    for one in (path, *(Path(f"{path}.{n}") for n in range(1, FILES_MAX + 1))):
        with contextlib.suppress(FileNotFoundError), one.open(errors="replace") as file:  # a kill may leave a gap
            inode = os.fstat(file.fileno()).st_ino
            if inode not in texts:
                texts[inode] = file.read()
    return list(reversed(texts.values()))


def _process_id(container_dir: Path, name: str) -> str:
    """The process id that files of this name belong to. Executors all have the same name, so they are numbered."""
    return f"{name}-{container_dir.name.removeprefix('container_')}" if name == EXECUTOR else name


def _patiently(ask: Callable[[Launch], T], launch: Launch) -> T:
    """What a Topology Master answers, asked again while there is none that does."""
    deadline = time.monotonic() + _ANSWER_S
    while True:
        try:
            return _blocking(ask, launch)
        except UnavailableError:
            if time.monotonic() > deadline or not launch.dir.exists():
                raise
        time.sleep(_POLL_S)


def _blocking(function: Callable[..., T], *args: Any) -> T:
    """Call a function that runs an event loop of its own, also where one runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function(*args)
    context = contextvars.copy_context()
    result: list[T] = []
    error: list[BaseException] = []

    def call() -> None:
        try:
            result.append(context.run(function, *args))
        except BaseException as e:  # handed to the caller, whatever it is
            error.append(e)

    thread = threading.Thread(target=call, name="heronpy.testing")
    thread.start()
    thread.join()
    if error:
        raise error[0]
    return result[0]
