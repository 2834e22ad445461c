"""Reading a task's counters from outside without any cost per tuple.

A task that wants to be measured opens a `Probe`: a thread that blocks on a datagram socket in the benchmark's directory
and answers each datagram with the counters of that moment. Between two questions it does nothing at all.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from heronpy.errors import UsageError

ANSWER_TIMEOUT_S = 5.0
DIRECTORY_BYTES_MAX = 90
"""A socket's path may have 107 bytes, and a task's name needs some of them."""
LATENCIES_MAX = 4_000_000
"""Measured latencies that a task keeps (8 bytes each); later ones are left out."""


class Latencies:
    """Latencies in ns. Written by the task's thread, read and reset by the probe's."""

    def __init__(self) -> None:
        self._ns = array.array("q")
        self.count = 0
        """How many were ever added."""

    def add(self, ns: int) -> None:
        self.count += 1
        if len(self._ns) < LATENCIES_MAX:
            self._ns.append(ns)

    def take(self, path: Path) -> None:
        """Write those since the last call to a file and start anew."""
        taken, self._ns = self._ns, array.array("q")
        path.write_bytes(taken.tobytes())


class Probe:
    """Answers for one task at `<directory>/<name>.sock` as long as the process lives."""

    def __init__(
        self, directory: Path, name: str, counters: Callable[[], dict[str, int]], latencies: Latencies | None = None
    ) -> None:
        self._name = name
        self._counters = counters
        self._latencies = latencies
        self._closed = False
        self._latency_file = directory / f"{name}.latencies"
        path = directory / f"{name}.sock"
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        threading.Thread(target=self._answer, name="probe", daemon=True).start()

    def close(self) -> None:
        """Answer no more, and let go of the counters."""
        self._closed = True
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes it

    def _answer(self) -> None:
        while True:
            question, asker = self._socket.recvfrom(64)
            if self._closed:
                self._socket.close()
                return
            if question == b"latencies" and self._latencies is not None:
                self._latencies.take(self._latency_file)
            answer = {**self._counters(), "name": self._name, "at_s": monotonic()}
            with contextlib.suppress(OSError):  # who asked is gone
                self._socket.sendto(json.dumps(answer).encode(), asker)


@dataclass(frozen=True, slots=True)
class Sample:
    """The sum of some tasks' counters, and when they were read."""

    count: int
    at_s: float


class Prober:
    """Asks probes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(directory / "prober.sock"))

    def up(self, names: list[str]) -> bool:
        """Whether all of them have opened their sockets."""
        return all((self.directory / f"{name}.sock").exists() for name in names)

    def sample(self, names: list[str]) -> Sample:
        """The tasks' counts now. Exact: each is read at one moment, the moments are averaged.

        Raises:
            TimeoutError, OSError: a task does not answer.
        """
        answers = [self._ask(name, b"count") for name in names]
        return Sample(sum(a["count"] for a in answers), sum(a["at_s"] for a in answers) / len(answers))

    def counters(self, name: str, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
        """All counters of a task, which may be dying: then it does not answer. Raises as `sample`."""
        return self._ask(name, b"count", timeout_s)

    def latencies_ns(self, names: list[str]) -> npt.NDArray[np.int64]:
        """All latencies that the tasks measured since this was last called."""
        for name in names:
            self._ask(name, b"latencies")
        files = [self.directory / f"{name}.latencies" for name in names]
        return np.concatenate([np.fromfile(path, dtype=np.int64) for path in files])

    def _ask(self, name: str, question: bytes, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
        give_up_s = monotonic() + timeout_s
        self._socket.sendto(question, str(self.directory / f"{name}.sock"))
        while True:
            self._socket.settimeout(max(give_up_s - monotonic(), 1e-3))
            answer: dict[str, Any] = json.loads(self._socket.recv(4096))
            if answer["name"] == name:  # else it was asked before, and answers only now
                return answer

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def prober(directory: Path) -> Iterator[Prober]:
    """A prober for a directory of its own, made here.

    Raises:
        UsageError: the directory's path is too long for sockets in it.
    """
    if len(os.fsencode(directory)) > DIRECTORY_BYTES_MAX:
        raise UsageError(f"the path {directory} is too long for sockets in it: set TMPDIR to a shorter one")
    directory.mkdir()
    p = Prober(directory)
    try:
        yield p
    finally:
        p.close()
