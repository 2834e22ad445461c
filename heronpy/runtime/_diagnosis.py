"""What a live process reports of itself when it gets a signal, in files beside its log.

    SIGUSR1    <log>.stack     the stacks of all threads, appended. Written by C code within the signal handler, so it
                               works also while user code holds the interpreter, and costs microseconds.
    SIGUSR2    <log>.memory    memory, garbage collector and objects by type, as JSON; replaced. Counted by a thread of
                               its own in small steps for at most COUNT_S: the data path gets slower meanwhile, by less
                               than a half, and stands still for no longer than it takes to list the objects (some 10 ms
                               for a million of them).

Objects that the garbage collector does not track (numbers, strings, and containers of nothing else) are not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from heronpy.files import replace_file

log = logging.getLogger(__name__)

COUNT_S = 1.0
"""Longest time of counting objects."""
TYPES_MAX = 200
"""How many types are reported, those with the most bytes first."""
STACK_BYTES_MAX = 4 * 1024 * 1024
_STEP = 2000
_PAUSE_S = 0.001

_counting = threading.Lock()


def stack_path(log_file: Path) -> Path:
    """Where the process that logs to this file writes its stacks on SIGUSR1."""
    return log_file.with_suffix(".stack")


def memory_path(log_file: Path) -> Path:
    """Where the process that logs to this file writes its memory on SIGUSR2."""
    return log_file.with_suffix(".memory")


def answer_signals(log_file: Path) -> None:
    """Answer SIGUSR1 and SIGUSR2 from now on. Called in the main thread, with the event loop running."""
    try:
        stacks = stack_path(log_file).open("ab")
    except OSError as e:
        log.warning("stacks cannot be written to %s: %s", stack_path(log_file), e)
        return
    if stacks.tell() > STACK_BYTES_MAX:
        stacks.truncate(0)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)  # keeps the file open
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, _start_counting, memory_path(log_file))


def _start_counting(path: Path) -> None:
    if _counting.acquire(blocking=False):
        threading.Thread(target=_write, args=(path,), name="memory-summary", daemon=True).start()


def _write(path: Path) -> None:
    try:
        replace_file(path, json.dumps(memory_summary()), durable=False)
    except OSError as e:
        log.warning("the memory summary %s cannot be written: %s", path, e)
    finally:
        _counting.release()


def memory_summary(count_s: float = COUNT_S) -> dict[str, Any]:
    """The memory of this process, and its tracked objects by type."""
    import tracemalloc  # here, because most processes are never asked

    began_s = time.monotonic()
    objects = gc.get_objects()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    counted = 0
    while counted < len(objects) and time.monotonic() - began_s < count_s:
        for found in objects[counted : counted + _STEP]:
            kind = type(found)
            name = f"{kind.__module__}.{kind.__qualname__}"
            counts[name] += 1
            with contextlib.suppress(Exception):  # a __sizeof__ of the user's may do anything
                sizes[name] += sys.getsizeof(found)
        counted = min(counted + _STEP, len(objects))
        time.sleep(_PAUSE_S)
    traced = tracemalloc.get_traced_memory() if tracemalloc.is_tracing() else None
    return {
        "time": time.time(),
        "pid": os.getpid(),
        "process": _process(),
        "objects": {"tracked": len(objects), "counted": counted, "frozen": gc.get_freeze_count()},
        "gc": [{"threshold": t, **stats} for t, stats in zip(gc.get_threshold(), gc.get_stats(), strict=True)],
        "tracemalloc": {"current_bytes": traced[0], "peak_bytes": traced[1]} if traced else None,
        "types": [[name, counts[name], size] for name, size in sizes.most_common(TYPES_MAX)],
    }


def _process() -> dict[str, str]:
    wanted = ("VmPeak", "VmSize", "VmHWM", "VmRSS", "RssAnon", "RssFile", "VmData", "VmSwap", "Threads")
    lines = (line.partition(":") for line in Path("/proc/self/status").read_text().splitlines())
    return {key: value.strip() for key, _, value in lines if key in wanted}
