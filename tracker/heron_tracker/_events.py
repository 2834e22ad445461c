"""Server-sent events: changes of topologies, sent as they happen.

    event: topologies     the names of all, `/topologies`' shape; first, and whenever one comes or goes
    event: topology       one topology whose state, plan or Topology Master changed
    event: statemanagers  a state manager that was lost or is back

Every subscriber has a bounded queue. A subscriber that is too slow for it gets the whole state again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from heron_tracker._directory import Directory
from heron_tracker._tmasters import iso_time
from heron_tracker._topology import Key, Topology

QUEUE_MAX = 1000
SUBSCRIBERS_MAX = 500
HEARTBEAT_S = 15.0

_END = ""
_Published = dict[str, dict[str, Any]]


class Events:
    """Sends every change of a directory to every subscriber."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._subscribers: list[asyncio.Queue[str]] = []
        self._sent = _state(directory)
        self._closed = False
        directory.listen(self._changed)

    @property
    def subscribers(self) -> int:
        return len(self._subscribers)

    @property
    def full(self) -> bool:
        """Whether the limit of subscribers is reached."""
        return len(self._subscribers) >= SUBSCRIBERS_MAX

    def close(self) -> None:
        """End all streams: a server that stops waits for them."""
        self._closed = True
        for queue in self._subscribers:
            _put(queue, _END)

    async def stream(self) -> AsyncIterator[str]:
        """The events of one subscriber: first everything, then what changes."""
        queue: asyncio.Queue[str] = asyncio.Queue(QUEUE_MAX)
        self._subscribers.append(queue)
        try:
            for event in _all(self._sent):
                yield event
            while not self._closed:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        event = await queue.get()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if event == _END:
                    return
                yield event
        finally:
            self._subscribers.remove(queue)

    def _changed(self) -> None:
        before, self._sent = self._sent, _state(self._directory)
        events = _differences(before, self._sent)
        for queue in self._subscribers:
            if queue.qsize() + len(events) >= QUEUE_MAX:
                while not queue.empty():
                    queue.get_nowait()
                for event in _all(self._sent)[: QUEUE_MAX - 1]:
                    queue.put_nowait(event)
            else:
                for event in events:
                    queue.put_nowait(event)


def names(directory: Directory) -> dict[str, dict[str, dict[str, list[str]]]]:
    """All topologies by cluster, role and environment."""
    return _names(directory.topologies)


def _names(topologies: dict[Key, Any]) -> dict[str, dict[str, dict[str, list[str]]]]:
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for key in topologies:
        found.setdefault(key.cluster, {}).setdefault(key.role, {}).setdefault(key.environ, []).append(key.name)
    return found


def _state(directory: Directory) -> _Published:
    topologies = directory.topologies
    return {
        "topologies": {"": _names(topologies)},
        "topology": {str(key): published(topology) for key, topology in topologies.items()},
        "statemanagers": {
            "": {
                f.config.name: {"connected": f.error is None, "error": f.error, "damaged": f.damaged}
                for f in directory.followers
            }
        },
    }


def published(topology: Topology) -> dict[str, Any]:
    """What events and lists show of one topology."""
    key, lost_s = topology.key, topology.tmaster_lost_s
    return {
        "cluster": key.cluster,
        "role": key.role,
        "environ": key.environ,
        "name": key.name,
        "statemgr": topology.statemgr,
        "id": topology.id,
        "status": topology.status,
        "plan_version": topology.physical.version if topology.physical is not None else 0,
        "has_physical_plan": topology.physical is not None,
        "tmaster": "ok" if topology.tmaster is not None else f"unreachable since {iso_time(lost_s or 0.0)}",
    }


def _event(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def _all(published: _Published) -> list[str]:
    return [_event(kind, data) for kind, items in published.items() for data in items.values()]


def _differences(before: _Published, after: _Published) -> list[str]:
    return [
        _event(kind, data)
        for kind, items in after.items()
        for name, data in items.items()
        if before[kind].get(name) != data
    ]


def _put(queue: asyncio.Queue[str], event: str) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(event)
