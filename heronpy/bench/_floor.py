"""The floor: the least that two Python processes need to do the same work.

One process calls next_tuple() once per tuple; emit() appends to a list; full lists are pickled and written to a socket.
The other reads and unpickles them and calls process() once per tuple. No grouping, no acks, no metrics, no second
thread: what an engine costs is what it costs more than this. Spout and bolt are the benchmark's own, in their simplest
form, so a topology with acks is measured against a floor without.

    python -m heronpy.bench._floor spout|bolt <directory> <file descriptor of the socket>
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from heronpy.bench._topology import BOLT, DIRECTORY, RATE, SPOUT, CountBolt, WordSpout
from heronpy.config import EngineConfig
from heronpy.runtime import PARENT_ENV, die_with_parent

_LENGTH = struct.Struct("<Q")
STOP_TIMEOUT_S = 5.0


class FloorTuple(msgspec.Struct, gc=False):
    """The lightest object with `.values`."""

    values: tuple[Any, ...]


class _FloorSpout(WordSpout):
    def __init__(self) -> None:
        self.batch: list[tuple[Any, ...]] = []
        self._append = self.batch.append

    def emit(self, tup: Any) -> None:  # type: ignore[override]  # all that the simplest spout needs
        self._append(tup)


class _FloorBolt(CountBolt):
    def __init__(self) -> None:
        pass


class _Context:
    def __init__(self, component: str) -> None:
        self._component = component

    def get_component_id(self) -> str:
        return self._component

    def get_task_id(self) -> int:
        return 1

    def get_component_tasks(self, component: str) -> list[int]:
        return [1]


@contextlib.contextmanager
def running_floor(directory: Path) -> Iterator[dict[int, str]]:
    """Run the two processes for the time of the block; gives pid and kind of each.

    Its probes are in `directory`, under the names of a topology with one spout task and one bolt task.
    """
    ours, theirs = socket.socketpair()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with ours, theirs:
            for kind, end in ((SPOUT, ours), (BOLT, theirs)):
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", __name__, kind, str(directory), str(end.fileno())],
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


def _run_spout(spout: _FloorSpout, link: socket.socket, batch_tuples: int) -> None:
    next_tuple = spout.next_tuple
    batch = spout.batch
    while True:
        for _ in range(batch_tuples):
            next_tuple()
        data = pickle.dumps(batch, protocol=5)
        batch.clear()
        link.sendall(_LENGTH.pack(len(data)))
        link.sendall(data)


def _run_bolt(bolt: _FloorBolt, link: socket.socket) -> None:
    process = bolt.process
    with link.makefile("rb") as f:
        while header := f.read(_LENGTH.size):
            data = f.read(_LENGTH.unpack(header)[0])
            for values in pickle.loads(data):
                process(FloorTuple(values))


def main() -> None:
    die_with_parent()
    kind, directory, fd = sys.argv[1:]
    config = {DIRECTORY: directory, RATE: 0}
    with socket.socket(fileno=int(fd)) as link:
        if kind == SPOUT:
            spout = _FloorSpout()
            spout.initialize(config, _Context(SPOUT))
            _run_spout(spout, link, EngineConfig().instance.batch_tuples)
        else:
            bolt = _FloorBolt()
            bolt.initialize(config, _Context(BOLT))
            _run_bolt(bolt, link)


if __name__ == "__main__":
    main()
