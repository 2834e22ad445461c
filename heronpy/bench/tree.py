"""What a process and all that it starts need: CPU time and peaks of memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import psutil

_SAMPLE_S = 0.1


class Tree:
    """A process with all that it has started: its CPU time since the first sample, and its peaks of memory."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._before: dict[psutil.Process, float] = {}
        self._cpu_s: dict[psutil.Process, float] = {}
        self._peaks = {"driver": 0, "jvm": 0, "workers": 0, "largest_worker": 0, "all": 0}
        self._look(first=True)

    def cpu_s(self) -> float:
        """CPU seconds, user and system, up to a sampling interval per process that has ended."""
        return sum(used - self._before.get(process, 0.0) for process, used in self._cpu_s.items())

    def rss_mb(self) -> dict[str, float]:
        """Peaks. Workers are forks: what they share is counted in each of them."""
        return {name: size / 1e6 for name, size in self._peaks.items()}

    def look(self) -> None:
        """Take a sample."""
        self._look(first=False)

    def _look(self, first: bool) -> None:
        sizes = {"driver": 0, "jvm": 0, "workers": 0, "largest_worker": 0}
        for process in [self._root, *self._root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                with process.oneshot():
                    times, size, name = process.cpu_times(), process.memory_info().rss, process.name()
                self._cpu_s[process] = times.user + times.system
                if process == self._root:
                    sizes["driver"] += size
                elif name == "java":
                    sizes["jvm"] += size
                else:
                    sizes["workers"] += size
                    sizes["largest_worker"] = max(sizes["largest_worker"], size)
        if first:
            self._before = dict(self._cpu_s)
        sizes["all"] = sizes["driver"] + sizes["jvm"] + sizes["workers"]
        self._peaks = {name: max(peak, sizes[name]) for name, peak in self._peaks.items()}


@contextlib.contextmanager
def watched_tree(pid: int) -> Iterator[Tree]:
    """Inside, look at the process and all that it starts, ten times a second."""
    tree = Tree(pid)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_SAMPLE_S):
            with contextlib.suppress(psutil.Error):  # it may end at any moment
                tree.look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield tree
    finally:
        over.set()
        watcher.join()
        with contextlib.suppress(psutil.Error):
            tree.look()
