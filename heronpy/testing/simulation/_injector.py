"""What each fault does to a simulated cluster, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heronpy.plan import TopologyState
from heronpy.testing.simulation._cluster import Cluster
from heronpy.testing.simulation._faults import (
    Break,
    Cut,
    Damage,
    Detach,
    Expire,
    Fault,
    Kill,
    Pause,
    Replace,
    Restore,
    Save,
    Scale,
    StateAway,
    StateEmptied,
    Stop,
    StorageAway,
)

_RETRY_S = 1.0


class Injector:
    """Injects faults into one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.ends_s = 0.0
        """When the last fault ends, as far as they have begun."""
        self.wanted = TopologyState.RUNNING
        """The state that the cluster's user has asked for last."""
        self._calls = 0

    def apply(self, fault: Fault) -> None:
        """Let a fault happen now."""
        if isinstance(fault, (Kill, Stop, Expire, Detach)) and not self._cluster.matching(fault.process):
            return
        match fault:
            case Kill(process, down_s):
                for name in self._cluster.matching(process):
                    self._kill(name, down_s)
            case Stop(process, for_s):
                for name in self._cluster.matching(process):
                    self._stop(name, for_s)
            case Cut(a, b, for_s, one_way):
                pairs = [(a, b)] if one_way else [(a, b), (b, a)]
                self._cut(pairs, for_s)
            case Break(a, b):
                self._cluster.network.break_between(a, b)
                self._until(0, lambda: None, data_path=True)
            case Detach(process):
                for name in self._cluster.matching(process):
                    if (running := self._cluster.services[name].process) is not None:
                        self._cluster.network.break_of(running)
                    self._until(0, lambda: None, data_path=self._cluster.services[name].on_data_path)
            case Replace(container, stopped_s):
                self._replace(container, stopped_s)
            case StateAway(for_s):
                self._cluster.store.set_away(True)
                self._until(for_s, lambda: self._cluster.store.set_away(False), data_path=False)
            case StateEmptied():
                if not self._cluster.was_read:
                    return  # what it had would be unknown
                self._cluster.store.empty()
                self._cluster.storage.record_lost()
                self._until(0, lambda: None, data_path=False)
            case Expire(process, for_s):
                for name in self._cluster.matching(process):
                    self._expire(name, for_s)
            case Pause(for_s):
                self._want(TopologyState.PAUSED)
                self._until(for_s, lambda: self._want(TopologyState.RUNNING), data_path=True)
            case Scale(component, to) if self._cluster.setup.checkpoints:
                self._update(component, to)
            case Scale(component, to):
                self._scale(component, to)
            case StorageAway(for_s):
                self._set_storage_away(True)
                self._until(for_s, lambda: self._set_storage_away(False), data_path=False)
            case Damage(component):
                self._cluster.storage.damage(component)
                self._until(0, lambda: None, data_path=False)
            case Save():
                self._save()
            case Restore():
                for tmaster in self._cluster.active_tmasters():
                    if tmaster.restore():
                        self._until(0, lambda: None, data_path=True)

    def _set_storage_away(self, away: bool) -> None:
        self._cluster.storage.away = away

    def _save(self) -> None:
        """Ask for a checkpoint until there is one, as the CLI's user would."""
        self._calls += 1
        call = self._calls
        asked = [tmaster for tmaster in self._cluster.active_tmasters() if tmaster.save(call)]

        def look() -> None:
            waits = [node for node in asked if node.core.active and node.process.alive and call not in node.replies]
            if waits or not any(node.replies.get(call) == "" for node in asked):
                self._until(_RETRY_S, look if waits else self._save, data_path=True)

        self._until(_RETRY_S, look, data_path=True)

    def _scale(self, component: str, to: int) -> None:
        """Try until the state manager takes it."""
        self._until(0, lambda: None, data_path=True)
        if not self._cluster.scale(component, to):
            self._cluster.loop.after(_RETRY_S, lambda: self._scale(component, to))

    def _update(self, component: str, to: int) -> None:
        """Ask until it is so, as the CLI's user would."""
        self._calls += 1
        call = self._calls
        asked = self._cluster.request_scale(call, component, to)
        if asked is None:
            self._until(0, lambda: None, data_path=True)
            return

        def look() -> None:
            waits = [node for node in asked if node.core.active and node.process.alive and call not in node.replies]
            self._until(_RETRY_S, look if waits else lambda: self._update(component, to), data_path=True)

        self._until(_RETRY_S, look, data_path=True)

    def _cut(self, pairs: Sequence[tuple[str, str]], for_s: float) -> None:
        def heal() -> None:
            for pair in pairs:
                self._cluster.network.heal(*pair)

        for pair in pairs:
            self._cluster.network.cut(*pair)
        self._until(for_s, heal, data_path=True)

    def _until(self, for_s: float, end: Callable[[], object], *, data_path: bool) -> None:
        """Note a fault, and end it after a time."""

        def ended() -> None:
            end()
            self._note(data_path)

        self._note(data_path)
        self.ends_s = max(self.ends_s, self._cluster.loop.now_s + for_s)
        if data_path:
            self._cluster.data_path_s = max(self._cluster.data_path_s, self._cluster.loop.now_s + for_s)
        self._cluster.loop.after(for_s, ended)

    def _note(self, data_path: bool) -> None:
        if data_path:
            self._cluster.data_path_s = max(self._cluster.data_path_s, self._cluster.loop.now_s)

    def _kill(self, name: str, down_s: float) -> None:
        self._until(down_s, self._cluster.kill(name), data_path=self._cluster.services[name].on_data_path)

    def _stop(self, name: str, for_s: float) -> None:
        process = self._cluster.services[name].process
        if process is not None and process.alive and not process.stopped:
            process.stop()
            self._until(for_s, process.resume, data_path=self._cluster.services[name].on_data_path)

    def _replace(self, container: int, stopped_s: float) -> None:
        old = self._cluster.replace(container)
        if old is not None:
            self._until(stopped_s, old.resume, data_path=True)

    def _expire(self, name: str, for_s: float) -> None:
        if (state := self._cluster.sessions.get(name)) is not None:
            state.expire()
            self._until(for_s, lambda: self._cluster.renew(state), data_path=False)

    def _want(self, wanted: TopologyState) -> None:
        self.wanted = wanted
        self._ask(wanted)

    def _ask(self, wanted: TopologyState) -> None:
        """Ask until it is done, as the CLI's user would."""
        if wanted is not self.wanted:
            return
        self._note(data_path=True)
        self._calls += 1
        call = self._calls
        asked = [tmaster for tmaster in self._cluster.active_tmasters() if tmaster.request(call, wanted)]

        def look() -> None:
            if wanted is self.wanted and not any(tmaster.replies.get(call) == "" for tmaster in asked):
                self._ask(wanted)

        self._cluster.loop.after(1.0, look)
