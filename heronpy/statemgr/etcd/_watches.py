"""Watches on etcd: one thread looks at all nodes, and follows them on one stream from the revision of that look.

Whenever the stream ends (a member dies, the endpoint changes, a revision was compacted away, a watch is added) all
nodes are looked at again and followed from there. So there is no progress to be lost, and of what happened in between
only values are missed that were replaced.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from heronpy.statemgr._watch import Watch
from heronpy.statemgr.etcd._gateway import (
    RESOURCE_EXHAUSTED,
    NoAnswerError,
    NotSentError,
    RefusedError,
    Stream,
)
from heronpy.statemgr.etcd._requests import Found, Json, folder_of, found_in, range_of, read, revision_of, transaction
from heronpy.statemgr.etcd._session import Sessions

log = logging.getLogger(__name__)

_LOOK_MAX = 64
"""Nodes that are read at once."""
_FOLDER_MIN = 32
"""From so many nodes of one folder on the whole folder is followed: a stream takes no endless list."""
_PAUSE_S = 0.2
_JOIN_S = 5.0
_MADE_WITHIN_S = 5.0
"""For so long a stream may take to begin; after that all nodes are read again."""


class EtcdWatches:
    """The watches of one state manager."""

    def __init__(self, sessions: Sessions, where: str) -> None:
        self._sessions, self._where = sessions, where
        self._all: dict[Watch, str] = {}
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._due = threading.Event()  # there is something to look at (again)
        self._again = threading.Event()  # only used to wait, so that `close` ends the pause
        self._thread: threading.Thread | None = None
        self._closed = False
        self._warned = ""

    def add(self, name: str, path: str, callback: Callable[[bytes | None], None]) -> Watch:
        """Follow a node; the callback is called soon."""
        watch = Watch(name, callback, self._drop)
        with self._lock:
            self._all[watch] = path
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="statemgr-etcd-watches", daemon=True)
                self._thread.start()
        self.look_again()
        return watch

    def _drop(self) -> None:
        with self._lock:
            for watch in [watch for watch in self._all if watch.cancelled]:
                del self._all[watch]

    def __len__(self) -> int:
        return len(self._all)

    @property
    def endpoint(self) -> int | None:
        """Which endpoint they follow; None while they follow none."""
        stream = self._stream
        return None if stream is None else stream.endpoint

    def look_again(self) -> None:
        """End the stream, if there is one, and start anew."""
        with self._lock:
            self._due.set()
            stream = self._stream
        if stream is not None:
            stream.interrupt()

    def close(self) -> None:
        """End all watches, and the thread unless it is the caller's."""
        with self._lock:  # so that the thread runs, or never will
            self._closed = True
            thread = self._thread
        self._again.set()
        self.look_again()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._closed:
            self._due.wait()
            self._due.clear()
            watched: dict[str, list[Watch]] = {}
            with self._lock:
                for watch, path in self._all.items():
                    watched.setdefault(path, []).append(watch)
            if not watched or self._closed:
                continue
            self._again.wait(0 if self._followed(watched) else _PAUSE_S)
            self._due.set()

    def _followed(self, watched: Mapping[str, Sequence[Watch]]) -> bool:
        """Read and follow, until there is a reason to read again. False if it could not."""
        try:
            self._follow(watched)
        except RefusedError as e:
            self._warn(str(self._sessions.refusal("follow nodes", e)))
        except (NoAnswerError, NotSentError) as e:
            self._warn(str(e))
        except Exception as e:
            # Whatever it is: without this thread no watch is notified, and nothing would notice its end.
            self._warn(f"{type(e).__name__}: {e}")
        else:
            return True
        return False

    def _warn(self, trouble: str) -> None:
        if trouble != self._warned and not self._closed:
            log.warning("watches in etcd at %s wait: %s", self._where, trouble)
        self._warned = trouble

    def _follow(self, watched: Mapping[str, Sequence[Watch]]) -> None:
        requests: list[Json] = []
        paths = sorted(watched)
        folders = Counter(path.rpartition("/")[0] for path in paths)
        whole: dict[str, int] = {}
        seen: dict[str, int] = {}
        for begin in range(0, len(paths), _LOOK_MAX):
            part = paths[begin : begin + _LOOK_MAX]
            for path, (revision, found) in zip(part, self._look(part), strict=True):
                self._deliver(watched[path], None if found is None else found.value)
                seen[path] = revision
                folder = path.rpartition("/")[0]
                if folders[folder] < _FOLDER_MIN:
                    requests.append(_create(range_of(path), revision + 1))
                else:
                    whole[folder] = min(revision + 1, whole.get(folder, revision + 1))
        requests += [_create(folder_of(f"{folder}/"), revision) for folder, revision in whole.items()]
        stream = self._sessions.gateway.stream("watch", requests)
        self._read(stream, stream.follow(len(requests), _MADE_WITHIN_S), watched, seen)

    def _look(self, paths: Sequence[str]) -> list[tuple[int, Found | None]]:
        """The newest value of each, and the store's revision when it was read."""
        gateway = self._sessions.gateway
        body = transaction([], [read(path) for path in paths])
        try:
            answer = gateway.call("kv/txn", body, gateway.attempt_timeout_s)
        except RefusedError as e:
            if e.code != RESOURCE_EXHAUSTED or len(paths) == 1:
                raise
            half = len(paths) // 2  # too much for one answer
            return self._look(paths[:half]) + self._look(paths[half:])
        revision = revision_of(answer)
        return [(revision, found) for found in found_in(answer)]

    def _read(
        self,
        stream: Stream,
        answers: Iterator[Json],
        watched: Mapping[str, Sequence[Watch]],
        seen: dict[str, int],
    ) -> None:
        with self._lock:
            self._stream = stream
            due = self._due.is_set() or self._closed
        try:
            if due:
                return
            for answer in answers:
                self._warned = ""
                if answer.get("canceled"):
                    if int(answer.get("compact_revision", 0)) == 0:
                        raise NoAnswerError(str(answer.get("cancel_reason") or "the watch was cancelled"))
                    return  # what we had seen was compacted away in the meantime
                self._changed(answer.get("events", ()), watched, seen)
                if self._due.is_set() or self._closed:
                    return
            raise NoAnswerError("the stream has ended")
        except NoAnswerError:
            if not (self._due.is_set() or self._closed):
                raise
        finally:
            with self._lock:
                self._stream = None
            with contextlib.suppress(Exception):  # it is of no use any more
                stream.close()

    def _changed(self, events: Sequence[Any], watched: Mapping[str, Sequence[Watch]], seen: dict[str, int]) -> None:
        newest: dict[str, bytes | None] = {}
        for event in events:
            kv = event["kv"]
            path, revision = base64.b64decode(kv["key"]).decode(), int(kv["mod_revision"])
            if revision > seen.get(path, revision):  # else not watched, or older than what was looked at
                seen[path] = revision
                deleted = event.get("type") == "DELETE"
                newest[path] = None if deleted else base64.b64decode(kv.get("value", ""))
        for path, value in newest.items():
            self._deliver(watched[path], value)

    def _deliver(self, watches: Sequence[Watch], value: bytes | None) -> None:
        for watch in watches:
            if not self._closed:
                watch.deliver(value)


def _create(what: Json, revision: int) -> Json:
    return {"create_request": {**what, "start_revision": str(revision), "fragment": True}}
