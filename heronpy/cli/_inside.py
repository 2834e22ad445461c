"""`stacks`, `memory` and `files`: what only a container's own host can tell, of any host."""

from __future__ import annotations

import asyncio
import re
import stat
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from heronpy.cli._containers import remote_containers
from heronpy.cli._options import ConfigPath, ConfigProperty, Verbose, home, read_properties
from heronpy.cli._target import resolve
from heronpy.errors import NotFoundError, UnavailableError, UsageError, nearest
from heronpy.runtime import Launch

if TYPE_CHECKING:
    from heronpy.proto import shell_pb2
    from heronpy.shell import Shell

T = TypeVar("T")

_IN_CONTAINER = re.compile(r"(?:container_(\d+)_.+|(?:stmgr|metricsmgr|ckptmgr|heron-shell|executor)-(\d+))")

Process = Annotated[
    list[str],
    typer.Argument(
        metavar="[CLUSTER[/ROLE[/ENV]]] NAME PROCESS",
        help="Which topology, and which of its processes: an instance, stmgr-N, metricsmgr-N, ckptmgr-N, tmaster.",
    ),
]


def stacks(
    words: Process, config_path: ConfigPath = None, config_property: ConfigProperty = None, verbose: Verbose = False
) -> None:
    """Print the stacks of all threads of a process, while it goes on."""
    _look(words, "jstack", config_path, config_property)


def memory(
    words: Process,
    objects: Annotated[
        bool, typer.Option("--objects", help="Its Python objects by type instead.", show_default=False)
    ] = False,
    mappings: Annotated[
        bool, typer.Option("--mappings", help="Its memory by mapping instead, in KiB.", show_default=False)
    ] = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Print what memory a process has, and the state of its garbage collector."""
    if objects and mappings:
        raise UsageError("--objects or --mappings, not both")
    _look(words, "histo" if objects else "pmap" if mappings else "jmap", config_path, config_property)


def files(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CLUSTER[/ROLE[/ENV]]] NAME [PATH]",
            help="Which topology, and a folder or a file below the log directory of its container.",
        ),
    ],
    container: Annotated[int, typer.Option(help="The container.", min=0)],
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """List what is below the log directory of a container, or print a file of it."""
    properties = read_properties(config_property or [])
    launch, path = resolve(words, home=home(), config_path=config_path, properties=properties, extra="PATH")
    path = (path or ".").rstrip("/") or "."

    async def show(shell: Shell) -> None:
        if path != "." and await _is_file(shell, path):
            await _print_file(shell, path)
        else:
            _print_folder(await shell.files(path))

    asyncio.run(_asked(launch, container, show))


def _look(words: list[str], kind: str, config_path: ConfigPath, config_property: ConfigProperty) -> None:
    properties = read_properties(config_property or [])
    launch, process = resolve(words, home=home(), config_path=config_path, properties=properties, extra="PROCESS")
    if process is None:
        raise UsageError(f"of which process of {launch.topology}? `heron status {launch.topology}` names them")

    async def look(shell: Shell) -> shell_pb2.LookReply:
        known = [one.id for one in (await shell.processes()).processes]
        if process not in known:
            raise NotFoundError(f"topology {launch.topology} has no process {process!r}{nearest(process, known)}")
        return await shell.look(kind, process)

    reply = asyncio.run(_asked(launch, container_of(launch, process), look))
    print(reply.stdout, end="" if reply.stdout.endswith("\n") else "\n")
    if reply.stderr:
        print(reply.stderr, file=sys.stderr, end="" if reply.stderr.endswith("\n") else "\n")


def container_of(launch: Launch, process: str) -> int:
    """The container of a process: its id names it.

    Raises:
        NotFoundError: it is no id of a process.
    """
    if process == "tmaster":
        return 0
    if (found := _IN_CONTAINER.fullmatch(process)) is not None:
        return int(found[1] or found[2])
    raise NotFoundError(f"topology {launch.topology} has no process {process!r}: see `heron status {launch.topology}`")


async def _asked(launch: Launch, number: int, call: Callable[[Shell], Awaitable[T]]) -> T:
    """The answer of a container, of this host or of another.

    Raises:
        NotFoundError: there is no such container.
        UnavailableError: its heron-shell does not answer.
    """
    # Here, because commands without a call would wait for gRPC.
    from heronpy.shell import Container, LocalShell
    from heronpy.shell.client import RemoteShell, ShellUnreachableError

    place = Container(launch.topology, launch.topology_id, number, launch.dir)
    if place.directory.is_dir():
        return await call(LocalShell(place))
    elsewhere = {one.number: one for one in await asyncio.to_thread(remote_containers, launch)}
    if number not in elsewhere:
        numbers = sorted({*elsewhere, *_local(launch)})
        known = f": it has {', '.join(map(str, numbers))}" if numbers else ""
        raise NotFoundError(f"topology {launch.topology} has no container {number} that has started{known}")
    container = elsewhere[number]
    if not container.endpoint:
        raise UnavailableError(f"{container} has no heron-shell (heron.shell.enabled), or it is not up yet")
    shell = RemoteShell(container.endpoint, launch.security("heron"), number)
    try:
        return await call(shell)
    except ShellUnreachableError as e:
        raise UnavailableError(f"{container}: its heron-shell at {container.endpoint} does not answer: {e}") from e
    finally:
        await shell.close()


def _local(launch: Launch) -> list[int]:
    names = (path.name.removeprefix("container_") for path in launch.dir.glob("container_*"))
    return [int(name) for name in names if name.isdecimal()]


async def _is_file(shell: Shell, path: str) -> bool:
    """Whether a path is a file, not a folder.

    Raises:
        NotFoundError: it is not there; names the nearest.
    """
    folder, _, name = path.rpartition("/")
    entries = {entry.name: entry for entry in (await shell.files(folder or ".")).files}
    if name not in entries:
        raise NotFoundError(f"there is no {path!r}{nearest(name, entries) or ' below the log directory'}")
    return not stat.S_ISDIR(entries[name].mode)


async def _print_file(shell: Shell, path: str) -> None:
    """Print it up to where it ended when that began."""
    end = (await shell.read(path, -1, -1)).size
    at = 0
    while at < end:
        part = await shell.read(path, at, end - at)
        if not part.data:
            break
        sys.stdout.buffer.write(part.data[: end - at])
        at += len(part.data)
    sys.stdout.flush()


def _print_folder(found: shell_pb2.FileList) -> None:
    width = max((len(str(entry.size)) for entry in found.files), default=0)
    for entry in found.files:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.modified_s))
        folder = "/" if stat.S_ISDIR(entry.mode) else ""
        print(f"{stat.filemode(entry.mode)}  {entry.size:>{width}}  {at}  {entry.name}{folder}")
    if found.truncated:
        print("… and more", file=sys.stderr)
