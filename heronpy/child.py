"""Child processes that can be waited for whatever a signal handler raises. A leaf, as `heronpy.parent`.

Python runs signal handlers between any two steps of the main thread, also between the call by which `Popen.poll()` and
`Popen.wait(timeout)` take their lock and the try that releases it. What a handler raises there (KeyboardInterrupt, or
the SystemExit of a SIGTERM) leaves the lock held: the wait that clears up stands for ever. Only a wait without a limit
takes it by a `with`, in which no handler comes in between.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import AnyStr

_POLL_MIN_S = 0.001
_POLL_MAX_S = 0.05


class Child(subprocess.Popen[AnyStr]):
    """A Popen whose lock is taken only when the process has ended, and only by a wait without a limit."""

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None and not self._has_ended():
            return None
        return super().wait()

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended.

        Args:
            timeout: in seconds.

        Raises:
            TimeoutExpired: it has not ended within that.
        """
        if timeout is not None:
            deadline_s, pause_s = time.monotonic() + timeout, _POLL_MIN_S
            while self.returncode is None and not self._has_ended():
                if (left_s := deadline_s - time.monotonic()) <= 0:
                    raise subprocess.TimeoutExpired(self.args, timeout)
                time.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _POLL_MAX_S)
        return super().wait()

    def _has_ended(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # another thread has waited for it
            return True


def run(
    command: Sequence[str], *, timeout_s: float, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return what it has printed.

    Args:
        command: the program and its arguments.
        timeout_s: how long it may take.
        stdin: what it reads.
        env: its environment, if not this one.

    Raises:
        OSError: it cannot be started.
        TimeoutExpired: it took longer, and is killed.
    """
    pipe = subprocess.PIPE
    with Child(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", env=env) as child:
        try:
            out, err = child.communicate(stdin, timeout_s)
        except BaseException:
            child.kill()
            raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)
