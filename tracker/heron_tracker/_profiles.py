"""Profiles of live processes: they sample themselves between two signals, see `heronpy.runtime`.

What they write is read back with care: user code can write there, too.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from heron_tracker import _models as m
from heron_tracker._processes import find, looking_into, open_regular, send, until, written
from heron_tracker._topology import Topology
from heronpy.config import MIB
from heronpy.errors import UnavailableError
from heronpy.host import HostProcess
from heronpy.runtime import START_SIGNAL, STOP_SIGNAL, profile_path

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


async def profile(busy: set[tuple[str, str]], topology: Topology, instance: str, seconds: float) -> m.Profile:
    """Have an instance or a Stream Manager sample its stacks.

    Args:
        busy: What is being profiled now.
        topology: Whose process it is.
        instance: Its id.
        seconds: For how long, at most SECONDS_MAX.

    Raises:
        NotFoundError, NotHereError: see `find`.
        UnavailableError: it does not run, is too old for this, or is being profiled; or too many others are.
    """
    with looking_into(instance):
        process, log_file = await asyncio.to_thread(find, topology, instance)
        return await _sampled(busy, topology, instance, seconds, process, log_file)


async def _sampled(
    busy: set[tuple[str, str]], topology: Topology, instance: str, seconds: float, process: HostProcess, log_file: Path
) -> m.Profile:
    key = (topology.id, instance)
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
    return m.Profile.model_validate({**msgspec.to_builtins(found), "instance": instance})


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
