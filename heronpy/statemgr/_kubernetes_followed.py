"""Following the nodes of one name: one thread, one watch of the API server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from heronpy.errors import HeronError
from heronpy.kubernetes import Stream
from heronpy.statemgr._kubernetes_objects import Entry, Head
from heronpy.statemgr._kubernetes_store import Call, Store
from heronpy.statemgr._watch import Watch

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_JOIN_S = 5.0

Resolve = Callable[[Call, Entry], tuple[bool, bytes | None]]
"""A node's value as its followers are to see it (None: its owner is gone), and whether it is known."""


class Followed:
    """The watches on the nodes of one name."""

    def __init__(self, store: Store, name: str, resolve: Resolve, timeout_s: float) -> None:
        self._store = store
        self._name = name
        self._resolve = resolve
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._watches: list[tuple[str, Watch]] = []
        self._added = 0
        self._owned: dict[str, str] = {}
        self._stream: Stream | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"statemgr-follow-{name}", daemon=True)

    def add(self, kind: str, watch: Watch) -> None:
        """Follow one more node; its callback gets the value now from the thread that gives it the later ones."""
        with self._lock:
            first = not self._watches and not self._thread.is_alive()
            self._watches.append((kind, watch))
            self._added += 1
            stream = self._stream
        if first:
            self._thread.start()
        elif stream is not None:
            stream.close()  # the thread reads everything anew

    def prune(self) -> bool:
        """Forget cancelled watches. True if none is left."""
        with self._lock:
            self._watches = [(kind, watch) for kind, watch in self._watches if not watch.cancelled]
            return not self._watches

    def owned(self) -> dict[str, str]:
        """The sessions that the followed ephemeral nodes belong to, by kind."""
        with self._lock:
            return dict(self._owned)

    def stop(self) -> None:
        """End it. Takes effect at once; `join` waits for it."""
        self._stopped.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()

    def join(self) -> None:
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        warned = ""
        while not self._stopped.is_set():
            try:
                self._follow()
                warned = ""
            except HeronError as e:
                if self._stopped.is_set():
                    return
                if str(e) != warned:
                    log.warning("%s; trying again", e)
                warned = str(e)
                self._stopped.wait(_RETRY_S)
            except Exception:
                # Whatever it is: without this thread no watch is notified any more, and nothing would notice.
                log.exception("following %s: trying again", self._name)
                self._stopped.wait(_RETRY_S)

    def _follow(self) -> None:
        """Read everything, and pass on what changes until the stream ends."""
        with self._lock:
            added = self._added
        head, version = self._store.read_version(Call(self._timeout_s), self._name)
        with self._store.watch(Call(self._timeout_s), self._name, version) as stream:
            with self._lock:
                self._stream = stream
            try:
                self._deliver(head)
                with self._lock:
                    if self._stopped.is_set() or self._added != added:
                        return  # stopped, or one more watch, before there was a stream to close
                for event in stream:
                    if event["type"] == "ERROR":
                        return  # mostly 410: the server has forgotten what changed since then
                    if event["type"] != "BOOKMARK":
                        self._deliver(self._store.head_in(self._name, event))
            finally:
                with self._lock:
                    self._stream = None

    def _deliver(self, head: Head) -> None:
        with self._lock:
            watches = list(self._watches)
            self._owned = {
                kind: head.entries[kind].owner
                for kind, _ in watches
                if kind in head.entries and head.entries[kind].owner
            }
        for kind, watch in watches:
            entry = head.entries.get(kind)
            known, value = (True, None) if entry is None else self._resolve(Call(self._timeout_s), entry)
            if known and not self._stopped.is_set():
                watch.deliver(value)
