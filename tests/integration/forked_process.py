"""What a fork server forks in the tests: says what it is, and waits for a signal if it is told to."""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from heronpy.instance import task
from heronpy.runtime import Profiler


def drawn(generator: np.random.BitGenerator | random.Random) -> int:
    return generator.getrandbits(64) if isinstance(generator, random.Random) else int(generator.random_raw())


def profiled_cpu_ns() -> int:
    """Of the main thread, which computes until the profiler has seen that, or for 10 s."""
    profiler, stop = Profiler(), threading.Event()
    thread = threading.Thread(target=profiler.run, args=(stop,))
    thread.start()
    deadline = time.monotonic() + 10
    while profiler.samples < 5 and time.monotonic() < deadline:
        sum(range(10_000))
    stop.set()
    thread.join()
    return sum(stack["cpu_ns"] for stack in profiler.profile()["stacks"] if stack["thread"] == "MainThread")


def main() -> None:
    gc.unfreeze()  # else what the fork server has imported is not among the objects
    generators = [one for one in gc.get_objects() if isinstance(one, np.random.BitGenerator | random.Random)]
    assert task.random_ids in generators
    said = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgrp(),
        "arguments": sys.argv[1:],
        "original": sys.orig_argv,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "command": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode().split("\0"),
        "seen": [os.fsdecode(one) for one in Path("/proc/self/environ").read_bytes().split(b"\0") if one],
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "main": sys.modules["__main__"].__spec__.name,  # type: ignore[union-attr]  # it is run as a module
        "numbers": [drawn(one) for one in generators],
    }
    if "computes" in sys.argv:
        said["cpu_ns"] = profiled_cpu_ns()
    print(json.dumps(said), flush=True)
    if "waits" in sys.argv:
        signal.pause()
    sys.exit(3)


if __name__ == "__main__":
    main()
