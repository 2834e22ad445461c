"""One process of the floor.

python -m heronpy.bench._floor_process words|count <directory> <file descriptor of the socket> <words>
"""

from __future__ import annotations

import pickle
import socket
import struct
import sys
from typing import Any

import msgspec

from heronpy.api import TopologyContext
from heronpy.bench._topology import BOLT, DIRECTORY, KEYS, RATE, SPOUT, CountBolt, WordSpout
from heronpy.config import EngineConfig
from heronpy.runtime import die_with_parent

_LENGTH = struct.Struct("<Q")


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


class _Context(TopologyContext):
    """The context of a task that is alone."""

    def __init__(self, component: str) -> None:
        self._component = component

    def get_this_task_index(self) -> int:
        return 0


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
                process(FloorTuple(values))  # type: ignore[arg-type]  # lighter than a Tuple, on purpose


def main() -> None:
    die_with_parent()
    kind, directory, fd, keys = sys.argv[1:]
    config = {DIRECTORY: directory, RATE: 0, KEYS: int(keys)}
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
