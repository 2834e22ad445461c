"""Another process that owns an ephemeral node (`python -m heronpy.testing._statemgr_owner`)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import time
from typing import IO

from heronpy.errors import AlreadyExistsError
from heronpy.runtime import PARENT_ENV, StatemgrSpec, die_with_parent
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing._statemgr_seen import SESSION_TIMEOUT_S, WITHIN_S


class Owner:
    """Another process that made an ephemeral node and keeps it until it is ended."""

    def __init__(self, spec: StatemgrSpec, kind: Kind, topology: str, value: bytes, *, holds: str = "") -> None:
        order = {
            "spec": dataclasses.asdict(spec),
            "kind": kind.value,
            "topology": topology,
            "value": value.decode(),
            "holds": holds,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "heronpy.testing._statemgr_owner", json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, PARENT_ENV: str(os.getpid())},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin: IO[bytes] = self.process.stdin
        self._stdout: IO[bytes] = self.process.stdout
        self._read = b""

    def said(self, within_s: float = WITHIN_S) -> str:
        """The next line of its output: `owned`, or the name of an error."""
        deadline_s = time.monotonic() + within_s
        while b"\n" not in self._read:
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, deadline_s - time.monotonic()))
            part = os.read(self._stdout.fileno(), 4096) if ready else b""
            assert part, f"the owner said nothing more, but {self._read!r}"
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    def tell(self, line: str) -> None:
        """One line to its input."""
        self._stdin.write(line.encode() + b"\n")

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def end(self) -> None:
        """Let it close its state manager and exit."""
        self._stdin.close()
        self.process.wait(WITHIN_S)

    def kill(self) -> None:
        """SIGKILL: nothing of it can tidy up."""
        self.process.kill()
        self.process.wait(WITHIN_S)
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()


def main() -> None:
    """An owner process: does what its argument says, reports it, and keeps it until stdin ends."""
    die_with_parent()
    order = json.loads(sys.argv[1])
    kind, topology, holds = Kind(order["kind"]), order["topology"], order["holds"]
    with contextlib.ExitStack() as stack:
        sm = stack.enter_context(open_statemgr(StatemgrSpec(**order["spec"]), session_timeout_s=SESSION_TIMEOUT_S))
        if holds == "lock":
            stack.enter_context(sm.lock(topology, "update"))
        else:
            if holds == "wait":
                print("ready", flush=True)
                sys.stdin.readline()
            deadline_s = time.monotonic() + WITHIN_S
            while True:
                try:
                    sm.create(kind, topology, order["value"].encode(), ephemeral=True)
                    break
                except AlreadyExistsError as e:
                    # The killed owner's session may have a moment left; then its node still counts.
                    now = sm.get(kind, topology)
                    if (now is not None and now.startswith(b"other")) or time.monotonic() > deadline_s:
                        print(type(e).__name__, flush=True)
                        sys.stdin.read()
                        return
                    time.sleep(0.02)
        print("owned", flush=True)
        if holds == "child":
            print(*_children(), flush=True)
        sys.stdin.read()


def _children() -> list[int]:
    """Two children that outlive us: one by exec, one by fork alone."""
    executed = subprocess.Popen(["sleep", "120"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, close_fds=False)
    forked = os.fork()
    if forked == 0:
        devnull = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(devnull, fd)
        time.sleep(120)
        os._exit(0)
    return [executed.pid, forked]


if __name__ == "__main__":
    main()
