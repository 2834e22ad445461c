"""The floor: the least that two Python processes need to do the same work.

One process calls next_tuple() once per tuple; emit() appends to a list; full lists are pickled and written to a socket.
The other reads and unpickles them and calls process() once per tuple. No grouping, no acks, no metrics, no second
thread: what an engine costs is what it costs more than this. Spout and bolt are the benchmark's own, in their simplest
form, so a topology with acks is measured against a floor without.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from heronpy.bench._topology import BOLT, SPOUT
from heronpy.runtime import PARENT_ENV

STOP_TIMEOUT_S = 5.0


@contextlib.contextmanager
def running_floor(directory: Path, keys: int) -> Iterator[dict[int, str]]:
    """Run the two processes, with so many different words, for the duration of the block; gives pid and kind of each.

    Its probes are in `directory`, under the names of a topology with one spout task and one bolt task.
    """
    ours, theirs = socket.socketpair()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with ours, theirs:
            for kind, end in ((SPOUT, ours), (BOLT, theirs)):
                processes.append(
                    subprocess.Popen(
                        [
                            *(sys.executable, "-m", "heronpy.bench._floor_process"),
                            *(kind, str(directory), str(end.fileno()), str(keys)),
                        ],
                        pass_fds=[end.fileno()],
                        env={**os.environ, PARENT_ENV: str(os.getpid())},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        start_new_session=True,  # Ctrl-C is for the benchmark, which ends these two
                    )
                )
        yield {process.pid: kind for process, kind in zip(processes, ("spout", "bolt"), strict=True)}
    finally:
        for process in processes:
            process.kill()  # nothing of theirs is worth an orderly end
        for process in processes:
            process.wait(STOP_TIMEOUT_S)
