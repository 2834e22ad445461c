"""`logs`."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from heronpy.cli._follow import Follower
from heronpy.cli._log_lines import readable
from heronpy.cli._options import ConfigPath, ConfigProperty, Verbose, home, read_properties
from heronpy.cli._target import resolve
from heronpy.errors import NotFoundError, nearest
from heronpy.host import EXECUTOR
from heronpy.runtime import Launch

POLL_S = 0.2
SUFFIXES = (".log", ".out")
"""What a process logs, and what it prints."""


def logs(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CLUSTER[/ROLE[/ENV]]] NAME [INSTANCE]",
            help="Which topology, and which of its processes: an instance, stmgr-N, metricsmgr-N, executor-N, tmaster.",
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow what is written from now on.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines of each file.", min=0)] = 50,
    raw: Annotated[
        bool, typer.Option("--raw", help="Lines of JSON as they are, not as text.", show_default=False)
    ] = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Print what the processes of a topology log and print, also what has been rotated."""
    launch, process = resolve(
        words,
        home=home(),
        config_path=config_path,
        properties=read_properties(config_property or []),
        extra="INSTANCE",
    )
    files = log_files(launch, process)
    shown = _Output(many=process is None, raw=raw)
    followers = {path: Follower(path) for path in files}
    for path, follower in followers.items():
        shown.write(path, follower.last(lines) + (b"" if follow else follower.rest()))
    if follow:
        with contextlib.suppress(KeyboardInterrupt):
            _follow(launch, process, followers, shown)


def log_files(launch: Launch, process: str | None) -> list[Path]:
    """The log files of one process, or of all, in the order of their names.

    Raises:
        NotFoundError: there is no such process; the nearest is named.
    """
    files: dict[str, list[Path]] = {}
    root = launch.dir.resolve()
    for path in sorted([*launch.dir.glob("log-files/*"), *launch.dir.glob("container_*/log-files/*")]):
        # User code may have put anything there, but a link must not lead out of the topology's directory.
        if path.suffix in SUFFIXES and path.is_file() and path.resolve().is_relative_to(root):
            files.setdefault(_process(path), []).append(path)
    if process is None:
        return [path for name in sorted(files) for path in files[name]]
    if process not in files:
        hint = nearest(process, files) or f": see `heron status {launch.topology}`"
        raise NotFoundError(f"topology {launch.topology} has no process {process!r}{hint}")
    return files[process]


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


def _follow(launch: Launch, process: str | None, followers: dict[Path, Follower], shown: _Output) -> None:
    while True:
        for path, follower in followers.items():
            shown.write(path, follower.read())
        if not launch.dir.exists():
            return  # the topology was killed
        time.sleep(POLL_S)
        with contextlib.suppress(NotFoundError, OSError):  # new files are looked for again with the next poll
            for path in log_files(launch, process):
                if path not in followers:
                    followers[path] = Follower(path)
