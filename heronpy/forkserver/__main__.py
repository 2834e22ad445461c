"""`python -m heronpy.forkserver FD MODULE…`: import the modules, and fork whom the socket FD asks for."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Mapping

from heronpy.forkserver._imported import Imported
from heronpy.forkserver._protocol import GO, READY, REQUEST_BYTES_MAX, Request
from heronpy.forkserver._titles import ROOM_ENV, rename
from heronpy.host import engine_process
from heronpy.parent import die_with_parent
from heronpy.start import run


def _main() -> None:
    die_with_parent()
    fd, _, *modules = sys.argv[1:]
    os.environ.pop(ROOM_ENV)
    _own_environment(dict(os.environ))
    rename(engine_process("heronpy.forkserver", fd, *modules), os.environ)
    for module in modules:
        _import(module)
    if threading.active_count() > 1:  # of a `sitecustomize`, say: forks would not have them, but what they have locked
        sys.exit(f"forks would lack these threads: {threading.enumerate()[1:]}")
    gc.freeze()  # the collector would write to every object, and so copy the memory that forks share
    asker = socket.socket(fileno=int(fd))
    asker.send(READY)
    request = _serve(asker)
    sys.argv, sys.orig_argv = ["", request.module, *request.args], [*request.argv]
    run()


def _import(module: str) -> None:
    """Import what is executed when a module is, but not as `__main__`."""
    spec = importlib.util.find_spec(module)
    is_package = spec is not None and spec.submodule_search_locations is not None
    name = f"{module}.__main__" if is_package else module
    importlib.import_module(name)
    del sys.modules[name]  # `runpy` warns of what is there before it is run


def _serve(asker: socket.socket) -> Request:
    """Fork for each request until there is nobody who asks. Returns only in the forks."""
    imported = Imported()
    while True:
        message, fds, _, _ = socket.recv_fds(asker, REQUEST_BYTES_MAX, 2)
        if not message:
            sys.exit(0)
        if file := imported.changed():
            sys.exit(f"another version is installed, of {file} for one: forks would be of both")
        # What is forked by a process that then ends is a child of the asker, who has said that it adopts.
        if (between := os.fork()) == 0:
            asker.close()
            out, link = fds
            return _fork(Request.decode(message), out, socket.socket(fileno=link))
        os.waitpid(between, 0)
        for fd in fds:
            os.close(fd)


def _fork(request: Request, out: int, asker: socket.socket) -> Request:
    """Fork and end. Returns only in the fork."""
    between = os.getpid()
    if pid := os.fork():
        with contextlib.suppress(OSError):  # it has given up
            asker.send(str(pid).encode())
        os._exit(0)
    return _become(request, out, asker, between)


def _become(request: Request, out: int, asker: socket.socket, between: int) -> Request:
    """Be what was asked for, as if it had been executed; end if the asker has given up in the meantime."""
    os.setpgid(0, 0)
    while (parent := os.getppid()) != request.parent:
        if parent != between:  # the asker is dead, and somebody else has adopted
            os._exit(1)
        os.sched_yield()
    _own_environment(request.environment)
    die_with_parent()
    rename(request.argv, request.environment)
    os.chdir(request.directory)
    for fd in (1, 2):
        os.dup2(out, fd)
    os.close(out)
    if not _is_wanted(asker):
        os._exit(1)
    if (shared := sys.modules.get("numpy.random")) is not None:
        shared.seed()  # else all forks would draw the same numbers; Python's own generator sees to that by itself
    return request


def _is_wanted(asker: socket.socket) -> bool:
    with asker, contextlib.suppress(ConnectionError):
        asker.send(READY + str(os.getpid()).encode())
        return asker.recv(len(GO)) == GO
    return False


def _own_environment(environment: Mapping[str, str]) -> None:
    """Set all variables anew, in memory of this process, so that those which it was executed with are not used."""
    os.environ.clear()
    os.environ.update(environment)


if __name__ == "__main__":
    _main()
