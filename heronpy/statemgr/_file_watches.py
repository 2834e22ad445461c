"""Watches on files: one thread looks at all of them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from msgspec import Struct

from heronpy.statemgr._node_file import Signature, Trusted, is_live, open_live, read, signature, signature_of
from heronpy.statemgr._watch import Watch

log = logging.getLogger(__name__)

_JOIN_S = 5.0


class _Seen(Struct):
    """The version of a node that a watch saw last. `fd` keeps its inode number from being used again."""

    watch: Watch
    path: str
    fd: int = -1
    signature: Signature | None = None
    failed: bool = False

    def replace(self, fd: int, signature: Signature | None) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.signature = fd, signature


class FileWatches:
    """The watches of one state manager, and the thread that serves them."""

    def __init__(self, trusted: Trusted, poll_interval_s: float) -> None:
        self._trusted = trusted
        self._poll_interval_s = poll_interval_s
        self._all: dict[Watch, _Seen] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, name: str, path: str, callback: Callable[[bytes | None], None]) -> Watch:
        """Follow a file; the callback is called soon."""
        watch = Watch(name, callback, self._wake.set)
        with self._lock:
            self._all[watch] = _Seen(watch, path)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="statemgr-files", daemon=True)
                self._thread.start()
        self._wake.set()
        return watch

    def close(self) -> None:
        """End all watches, and the thread unless it is the caller's."""
        with self._lock:  # so that the thread runs, or never will
            self._closed = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            while not self._closed:
                with self._lock:
                    watched = list(self._all.values())
                for seen in watched:
                    if seen.watch.cancelled:
                        self._drop(seen)
                    elif not self._closed:
                        self._look(seen)
                self._wake.wait(self._poll_interval_s if watched else None)
                self._wake.clear()
        finally:
            for seen in list(self._all.values()):
                self._drop(seen)

    def _drop(self, seen: _Seen) -> None:
        with self._lock:
            self._all.pop(seen.watch, None)
        seen.replace(-1, None)

    def _look(self, seen: _Seen) -> None:
        try:
            found = signature(seen.path)
            if found is not None and found == seen.signature and is_live(seen.fd):
                return
            value = None
            fd = -1 if found is None else open_live(seen.path, self._trusted)
            seen.replace(fd, None)
            if fd >= 0:
                # Of the descriptor, not of the name: a version that comes between is found by the next look. And what
                # cannot be read has not been seen.
                value = read(fd)
                seen.signature = signature_of(os.fstat(fd))
        except Exception as e:  # whatever it is: the other watches need this thread, and nothing would notice its end
            if not seen.failed:
                log.warning("%s cannot be read, its watch waits: %s", seen.path, e)
            seen.failed = True
            return
        seen.failed = False
        seen.watch.deliver(value)
