"""What runs inside of a test host's namespaces: its first process, and whatever is started there later.

    _namespace.py init '{"name": …}'                 the first process: makes the mounts, and reaps orphans
    _namespace.py enter PID DIRECTORY COMMAND…       a command beside the host's first process

Run as a script, in children: it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READY = "ready"
"""What the first process prints when the host can be used."""
_NAMESPACES = {"mnt": 0x00020000, "uts": 0x04000000, "net": 0x40000000, "pid": 0x20000000}
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def init(spec: dict[str, Any]) -> None:
    """Be the first process of new namespaces: when it ends, the kernel ends all others there.

    Args:
        spec: `name`; `binds`, paths by the paths that they are mounted at; `hide`, directories of other hosts.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    socket.sethostname(spec["name"])
    _run("ip", "link", "set", "lo", "up")
    _run("mount", "-t", "proc", "proc", "/proc")
    for directory in spec["hide"]:
        _run("mount", "-t", "tmpfs", "-o", "ro,size=4k", "tmpfs", directory)
    for at, path in spec["binds"].items():
        _run("mount", "--bind", path, at)
    if spec["binds"]:
        _run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    print(READY, flush=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.sigwait({signal.SIGCHLD})


def enter(pid: int, directory: str, command: Sequence[str]) -> None:
    """Run a command in the namespaces of a process, with this process as its stand-in: signals and exit code."""
    # All are opened first: /proc is another one in there.
    opened = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind) for name, kind in _NAMESPACES.items()]
    for fd, kind in opened:
        if _libc.setns(fd, kind) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(fd)
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()  # only children are in the other PID namespace
    if child == 0:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os.chdir(directory)
        os.execvp(command[0], list(command))
    for signum in _FORWARDED:
        signal.signal(signum, lambda signum, _: _forward(child, signum))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _forward(child: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signum)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def inner_pid(pid: int) -> int | None:
    """The child of a stand-in, as this process sees it; None if there is none (yet, or any more)."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None
    return None


if __name__ == "__main__":
    if sys.argv[1] == "init":
        init(json.loads(sys.argv[2]))
    else:
        enter(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
