"""What other processes see of a forked one: its command line and its environment, in /proc.

Both are read from the memory where the kernel has put them when the program was executed, so they are written there:
the command line for people, the environment because the engine finds its processes by it. There is as much room as the
fork server was executed with, so it is given more than it needs.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOM_ENV: Final = "HERON_ROOM"
ROOM: Final = "-" * 4096
"""What only takes room, as an argument and as the value of a variable."""
_ARG_START, _ENV_END = 45, 48
"""Of the fields of /proc/self/stat after the name, see proc(5): arg_start, arg_end, env_start, env_end."""


def rename(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have others see this command line and environment, as far as there is room for it.

    The variables of this process itself are to be set before: those that it was executed with are overwritten here.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()
    arg_start, arg_end, env_start, env_end = map(int, fields[_ARG_START : _ENV_END + 1])
    _write(arg_start, arg_end, argv)
    _write(env_start, env_end, [f"{key}={value}" for key, value in environment.items()])


def _write(start: int, end: int, strings: Sequence[str]) -> None:
    room = end - start
    text = b"".join(os.fsencode(one) + b"\0" for one in strings)
    if len(text) > room:  # as many whole ones as there is room for
        text = text[: text.rfind(b"\0", 0, room) + 1]
    ctypes.memmove(start, text.ljust(room, b"\0"), room)
