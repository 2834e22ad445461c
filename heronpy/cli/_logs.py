"""`logs`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from heronpy.cli._follow import Follower
from heronpy.cli._log_filter import since_of
from heronpy.cli._log_lines import readable
from heronpy.cli._options import ConfigPath, ConfigProperty, Verbose, home, read_properties
from heronpy.cli._remote_logs import LINES_MAX, SUFFIXES, Remote, Wanted
from heronpy.cli._stored_logs import ended_topology
from heronpy.cli._target import resolve
from heronpy.errors import HeronError, NotFoundError, UnavailableError, nearest
from heronpy.host import EXECUTOR
from heronpy.runtime import Launch

POLL_S = 0.2


def logs(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CLUSTER[/ROLE[/ENV]]] NAME [INSTANCE]",
            help="Which topology, and which of its processes: an instance, stmgr-N, metricsmgr-N, executor-N, tmaster.",
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow what is written from now on.")] = False,
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", help="How many lines of each file: 50, with --grep or --since all.", min=0),
    ] = None,
    container: Annotated[int | None, typer.Option(help="Only the processes of this container.", min=0)] = None,
    grep: Annotated[str, typer.Option(metavar="TEXT", help="Only lines that contain this text.")] = "",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Only lines since then: 10m (ago), or 2026-01-31T12:00.")
    ] = "",
    raw: Annotated[
        bool, typer.Option("--raw", help="Lines of JSON as they are, not as text.", show_default=False)
    ] = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Print what the processes of a topology log and print, on every host, also what has been rotated.

    Of a topology that was killed, what was stored (heron.logs.upload.uri): name it by CLUSTER[/ROLE[/ENV]] NAME.
    """
    properties = read_properties(config_property or [])
    try:
        launch, process = resolve(words, home=home(), config_path=config_path, properties=properties, extra="INSTANCE")
    except NotFoundError:
        ended = ended_topology(words, home=home(), config_path=config_path, properties=properties)
        if ended is None:
            raise
        launch, process = ended
    since_s = since_of(since, time.time()) if since else 0.0
    if lines is None:
        lines = LINES_MAX if grep or since else 50
    wanted = Wanted(process, container, grep, since_s, lines)
    files = log_files(launch, wanted)
    shown = _Output(many=process is None, raw=raw)
    followers = {path: _Local(path, wanted) for path in files}
    for path, one in followers.items():
        shown.write(path, one.last(rest=not follow))
    remote = Remote(launch, wanted, shown.write)
    found = remote.last(rest=not follow)
    if not files and not found and (why := _missing(launch, wanted, remote)) is not None:
        raise why
    if follow:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_follow(launch, wanted, followers, remote, shown))
    elif remote.silent:
        raise UnavailableError(f"the logs of {remote.silent} containers could not be read: see above")


def log_files(launch: Launch, wanted: Wanted) -> list[Path]:
    """The log files of this host that are asked for, in the order of the names of their processes."""
    files: dict[str, list[Path]] = {}
    for path, name in _all_files(launch):
        if wanted.process in (None, name) and wanted.container in (None, _container(path)):
            files.setdefault(name, []).append(path)
    return [path for name in sorted(files) for path in files[name]]


def _all_files(launch: Launch) -> list[tuple[Path, str]]:
    root = launch.dir.resolve()
    paths = sorted([*launch.dir.glob("log-files/*"), *launch.dir.glob("container_*/log-files/*")])
    # User code may have put anything there, but a link must not lead out of the topology's directory.
    return [
        (path, _process(path))
        for path in paths
        if path.suffix in SUFFIXES and path.is_file() and path.resolve().is_relative_to(root)
    ]


def _container(path: Path) -> int | None:
    number = path.parents[1].name.removeprefix("container_")
    return int(number) if number.isdecimal() else None


def _missing(launch: Launch, wanted: Wanted, remote: Remote) -> HeronError | None:
    """Why nothing was found; None: there is nothing yet."""
    if remote.silent:
        return UnavailableError(f"no logs of {launch.topology} were found on this host, and others are silent")
    known = {name for _, name in _all_files(launch)} | remote.processes
    name = launch.topology
    if wanted.process is not None and wanted.process not in known:
        hint = nearest(wanted.process, known) or f": see `heron status {name}`"
        return NotFoundError(f"topology {name} has no process {wanted.process!r}{hint}")
    if wanted.container is not None:
        return NotFoundError(f"container {wanted.container} of {name} has no such log files: see `heron status {name}`")
    return None


def _process(path: Path) -> str:
    """The id of the process that writes a file. Executors have files of one name, each in its container's directory."""
    if path.stem != EXECUTOR:
        return path.stem
    return f"{path.stem}-{path.parents[1].name.removeprefix('container_')}"


class _Output:
    """Writes lines, and above them whose they are whenever that changes."""

    def __init__(self, *, many: bool, raw: bool) -> None:
        self._many = many
        self._raw = raw
        self._last: Path | None = None

    def write(self, path: Path, data: bytes) -> None:
        if not data:
            return
        if path != self._last and (self._many or path.suffix != SUFFIXES[0] or self._last is not None):
            print(f"==> {path.parents[1].name}/{path.name} <==", flush=True)
        self._last = path
        if path.suffix == SUFFIXES[0] and not self._raw:
            data = readable(data)
        sys.stdout.buffer.write(data if data.endswith(b"\n") else data + b"\n")
        sys.stdout.flush()


class _Local:
    """A log file of this host."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._follower = Follower(path)
        self._wanted = wanted
        with contextlib.suppress(OSError):  # removed in this moment
            self._modified_s = path.stat().st_mtime
        self._filter = wanted.line_filter(path.name, getattr(self, "_modified_s", 0.0))

    def last(self, *, rest: bool) -> bytes:
        """The last lines; with what there is of one without an end."""
        found = self._filter(self._follower.last(self._wanted.lines))
        return found + (self._filter(self._follower.rest()) if rest else b"")

    def read(self) -> bytes:
        return self._filter(self._follower.read())


async def _follow(
    launch: Launch, wanted: Wanted, followers: dict[Path, _Local], remote: Remote, shown: _Output
) -> None:
    async with asyncio.TaskGroup() as tasks:
        others = tasks.create_task(remote.follow(), name="logs/remote")
        while launch.dir.exists():  # else the topology was killed
            for path, one in followers.items():
                shown.write(path, one.read())
            await asyncio.sleep(POLL_S)
            with contextlib.suppress(OSError):  # new files are looked for again with the next poll
                for path in log_files(launch, wanted):
                    if path not in followers:
                        followers[path] = _Local(path, wanted)
        others.cancel()
