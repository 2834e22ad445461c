"""A state manager in memory, as the real ones behave: its sessions expire, and it can be out of reach."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from heronpy.errors import AlreadyExistsError, StateError
from heronpy.statemgr import Kind, StateManager, Watch, check_condition, check_node

Key = tuple[Kind, str]


@dataclass
class _Node:
    value: bytes
    owner: MemoryStateManager | None = None


class MemoryStore:
    """The tree that several state managers share."""

    def __init__(self) -> None:
        self.away = False
        """Out of reach: every call fails, and nothing is reported."""
        self.lock = threading.RLock()
        self.nodes: dict[Key, _Node] = {}
        self.sessions: list[MemoryStateManager] = []

    def changed(self, key: Key) -> None:
        """Report the value of a node to all who watch it."""
        for session in list(self.sessions):
            session.report(key)

    def set_away(self, away: bool) -> None:
        """Go out of reach, or come back and report what has changed meanwhile."""
        with self.lock:
            self.away = away
            for session in list(self.sessions):
                session.report_all()

    def empty(self) -> None:
        """Lose all data, and all sessions; each is established again."""
        with self.lock:
            keys = list(self.nodes)
            self.nodes.clear()
            for key in keys:
                self.changed(key)
            for session in list(self.sessions):
                session.renew()


class MemoryStateManager(StateManager):
    """A session with a `MemoryStore`.

    Reports go through `post`, which is to call what it is given once, soon; by default at once, in the thread of the
    change.
    """

    def __init__(self, store: MemoryStore, post: Callable[[Callable[[], None]], None] = lambda call: call()) -> None:
        super().__init__()
        self._store, self._post = store, post
        self._watches: list[tuple[Key, Watch]] = []
        self._ephemeral: dict[Key, bytes] = {}
        store.sessions.append(self)

    # -- the session

    def expire(self) -> None:
        """The session is over: its nodes vanish. Its process may not know that."""
        with self._store.lock:
            for key in [key for key, node in self._store.nodes.items() if node.owner is self]:
                del self._store.nodes[key]
                self._store.changed(key)

    def renew(self) -> None:
        """A new session: nodes are made again, unless somebody else was quicker."""
        with self._store.lock:
            if self._closed:
                return
            for key, value in list(self._ephemeral.items()):
                if key not in self._store.nodes:
                    self._store.nodes[key] = _Node(value, self)
                    self._store.changed(key)
                elif self._store.nodes[key].owner is not self:
                    del self._ephemeral[key]

    # -- values

    def get(self, kind: Kind, topology: str) -> bytes | None:
        with self._store.lock:
            node = self._store.nodes.get(self._key(kind, topology))
            return node.value if node is not None else None

    def set(self, kind: Kind, topology: str, value: bytes) -> None:
        with self._store.lock:
            key = self._key(kind, topology)
            node = self._store.nodes.get(key)
            if node is not None and node.owner not in (None, self):
                raise AlreadyExistsError(f"{kind.value}/{topology} is the ephemeral node of another live process")
            owner = node.owner if node is not None else None
            self._store.nodes[key] = _Node(value, owner)
            if owner is not None:
                self._ephemeral[key] = value
            self._store.changed(key)

    def create(self, kind: Kind, topology: str, value: bytes, *, ephemeral: bool = False) -> None:
        with self._store.lock:
            key = self._key(kind, topology)
            if key in self._store.nodes:
                raise AlreadyExistsError(f"{kind.value}/{topology} exists")
            self._store.nodes[key] = _Node(value, self if ephemeral else None)
            if ephemeral:
                self._ephemeral[key] = value
            self._store.changed(key)

    def set_if(
        self, kind: Kind, topology: str, value: bytes, *, expected: bytes | None, of: Kind | None = None
    ) -> bool:
        check_condition(kind, expected, of)
        with self._store.lock:
            self._key(kind, topology)
            if self.get(of or kind, topology) != expected:
                return False
            self.set(kind, topology, value)
            return True

    def delete(self, kind: Kind, topology: str) -> bool:
        with self._store.lock:
            key = self._key(kind, topology)
            node = self._store.nodes.pop(key, None)
            if node is None:
                return False
            if node.owner is not None:
                node.owner._ephemeral.pop(key, None)
            self._store.changed(key)
            return True

    def list(self, kind: Kind) -> list[str]:
        with self._store.lock:
            self._check_reachable()
            return sorted(name for found, name in self._store.nodes if found is kind)

    # -- watches

    def watch(self, kind: Kind, topology: str, callback: Callable[[bytes | None], None]) -> Watch:
        with self._store.lock:
            self._check_usable()
            key = kind, check_node(kind, topology)
            watch = Watch(f"{kind.value}/{topology}", callback, lambda: self._forget(watch))
            self._watches.append((key, watch))
        self.report(key)
        return watch

    def _forget(self, watch: Watch) -> None:
        with self._store.lock:
            self._watches = [(key, each) for key, each in self._watches if each is not watch]

    def report_all(self) -> None:
        """Report every watched node as it is now."""
        for key in {key for key, _ in self._watches}:
            self.report(key)

    def report(self, key: Key) -> None:
        """Report a node, as it is when the report is made, to its watches."""
        for watched, watch in list(self._watches):
            if watched == key:
                self._post(lambda watch=watch: self._deliver(key, watch))  # type: ignore[misc]  # the loop's variable

    def _deliver(self, key: Key, watch: Watch) -> None:
        with self._store.lock:
            if self._store.away or self._closed:
                return
            node = self._store.nodes.get(key)
            value = node.value if node is not None else None
        watch.deliver(value)

    # -- the rest

    def _key(self, kind: Kind, name: str) -> Key:
        self._check_reachable()
        return kind, check_node(kind, name)

    def _check_reachable(self) -> None:
        self._check_usable()
        if self._store.away:
            raise StateError("the state manager is out of reach")

    def _close(self) -> None:
        with self._store.lock:
            if self in self._store.sessions:
                self._store.sessions.remove(self)
            for _, watch in list(self._watches):
                watch.cancel()
            self.expire()

    def _delete_own(self, kind: Kind, name: str, value: bytes) -> bool:
        with self._store.lock:
            node = self._store.nodes.get(self._key(kind, name))
            if node is None or node.owner is not self or node.value != value:
                return False
            return self.delete(kind, name)
