"""What tells that topologies came or went: the folder of execution states has changed.

A state manager follows nodes, not folders. A folder of files tells by its change time, which is looked at as often as
the nodes are; ZooKeeper tells by a watch on the children, which needs a connection of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from heronpy.errors import StateError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_LOOK_S = 0.25
_CONNECT_S = 5.0
_CLOSE_S = 3.0

_kazoo_log = logging.getLogger("heron_tracker.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)  # that the connection is lost is told by the state manager


class FolderWatch:
    """Calls `changed` from a thread of its own after every change of a folder, and maybe once more."""

    def __init__(self, spec: StatemgrSpec, kind: Kind, changed: Callable[[], None]) -> None:
        """Begin to watch.

        Raises:
            StateError: ZooKeeper does not answer.
        """
        self._changed = changed
        self._closed = threading.Event()
        self._client: KazooClient | None = None
        if spec.type == "zookeeper":
            self._client = self._connect(spec, kind)
        else:
            self._path = os.path.join(spec.root, kind.value)
            threading.Thread(target=self._look, name="tracker-folder", daemon=True).start()

    def close(self) -> None:
        """Call no more. Returns within a bounded time."""
        self._closed.set()
        if self._client is not None:
            _stop(self._client)

    def _look(self) -> None:
        seen = 0
        while not self._closed.wait(_LOOK_S):
            with contextlib.suppress(OSError):  # not there yet, or not readable now: looked at again
                now = os.stat(self._path).st_mtime_ns
                if now != seen:
                    seen = now
                    self._changed()

    def _connect(self, spec: StatemgrSpec, kind: Kind) -> KazooClient:
        # Here, because only Trackers that follow a ZooKeeper need it.
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException

        client = KazooClient(hosts=spec.connection, timeout=10.0, logger=_kazoo_log)
        try:
            client.start(timeout=_CONNECT_S)
            client.ChildrenWatch(f"/{spec.root.strip('/')}/{kind.value}", self._on_children)
        except (KazooException, OSError, client.handler.timeout_exception) as e:
            _stop(client)
            raise StateError(f"ZooKeeper at {spec.connection} does not answer: {e}") from e
        return client

    def _on_children(self, _names: list[str]) -> bool:
        if not self._closed.is_set():
            self._changed()
        return not self._closed.is_set()


def _stop(client: KazooClient) -> None:
    def stop() -> None:
        with contextlib.suppress(Exception):  # the connection may break in any way while it is closed
            client.stop()
            client.close()

    thread = threading.Thread(target=stop, name="tracker-folder-close", daemon=True)
    thread.start()
    thread.join(_CLOSE_S)
