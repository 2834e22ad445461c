"""Profiles of live processes: they sample themselves between two signals, see `heronpy.runtime`.

What they write is read back with care: user code can write there, too.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from heronpy.config import MIB
from heronpy.errors import UnavailableError
from heronpy.host import HostProcess
from heronpy.proto import shell_pb2
from heronpy.runtime import START_SIGNAL, STOP_SIGNAL, profile_path
from heronpy.shell._container import Container
from heronpy.shell._processes import find, looking_into, open_regular, send, until, written

SECONDS_MIN = 0.5
SECONDS_MAX = 30.0
PROFILES_MAX = 4
"""Most processes that are profiled at a time."""
_BYTES_MAX = 8 * MIB


class _Frame(msgspec.Struct):
    function: str
    file: str
    line: int


class _Stack(msgspec.Struct):
    thread: str
    frames: list[int]
    samples: int
    cpu_ns: int


class _Profile(msgspec.Struct):
    pid: int
    seconds: float
    samples: int
    dropped: int
    cost_cpu_s: float
    frames: list[_Frame]
    stacks: list[_Stack]


async def profile(
    busy: set[tuple[str, str]], container: Container, instance: str, seconds: float
) -> shell_pb2.ProcessProfile:
    """Have an instance or a Stream Manager sample its stacks.

    Args:
        busy: What is being profiled now.
        container: Where the process is.
        instance: Its id.
        seconds: For how long, at most SECONDS_MAX.

    Raises:
        NotHereError: see `find`.
        UnavailableError: it does not run, is too old for this, or is being profiled; or too many others are.
    """
    with looking_into(instance):
        process, log_file = await asyncio.to_thread(find, container, instance)
        return await _sampled(busy, container, instance, seconds, process, log_file)


async def _sampled(
    busy: set[tuple[str, str]],
    container: Container,
    instance: str,
    seconds: float,
    process: HostProcess,
    log_file: Path,
) -> shell_pb2.ProcessProfile:
    key = (container.topology_id, instance)
    if key in busy:
        raise UnavailableError(f"{instance} is being profiled: try again later")
    if len(busy) >= PROFILES_MAX:
        raise UnavailableError(f"{PROFILES_MAX} processes are being profiled: try again later")
    busy.add(key)
    try:
        path = profile_path(log_file)
        before = written(path)
        send(process, instance, START_SIGNAL)
        try:
            await asyncio.sleep(seconds)
        finally:
            send(process, instance, STOP_SIGNAL)
        why = f"{instance} wrote no {path.name}"
        found = await asyncio.to_thread(until, lambda: _read_new(path, before, process.pid), why)
    finally:
        busy.discard(key)
    try:
        return _message(found)
    except ValueError as e:  # a number that no profile can have
        raise UnavailableError(f"the profile that {instance} wrote is damaged") from e


def _message(found: _Profile) -> shell_pb2.ProcessProfile:
    return shell_pb2.ProcessProfile(
        pid=found.pid,
        seconds=found.seconds,
        samples=found.samples,
        dropped=found.dropped,
        cost_cpu_s=found.cost_cpu_s,
        frames=[shell_pb2.ProfileFrame(function=f.function, file=f.file, line=f.line) for f in found.frames],
        stacks=[
            shell_pb2.ProfileStack(thread=s.thread, frames=s.frames, samples=s.samples, cpu_ns=s.cpu_ns)
            for s in found.stacks
        ],
    )


def _read_new(path: Path, before: tuple[int, int], pid: int) -> _Profile | None:
    if written(path) in (before, (0, 0)) or (fd := open_regular(path)) is None:
        return None
    try:
        with os.fdopen(fd, "rb") as file:
            found = msgspec.json.decode(file.read(_BYTES_MAX), type=_Profile)
    except msgspec.DecodeError:
        return None
    known = range(len(found.frames))
    if found.pid != pid or not all(frame in known for stack in found.stacks for frame in stack.frames):
        return None
    return found
