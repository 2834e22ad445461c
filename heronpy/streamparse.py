"""streamparse's classes, with its defaults: change the import, and spouts and bolts written for it run here.

    from heronpy.streamparse import Bolt, Grouping, ReliableSpout, Spout, Topology

Bolts ack, anchor and fail by themselves, and topologies are at least once, as with Storm's ackers, unless
`topology.acker.executors` is 0. docs/migrating.md says what differs. Names and behaviour are those of streamparse 4 and
pystorm 3.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from heronpy import api
from heronpy.api import AssignableMetrics, Grouping, HeronComponentSpec, Stream, TopologyContext, Tuple, api_constants
from heronpy.api.topology import TopologyType

__all__ = [
    "BatchingBolt",
    "Bolt",
    "Grouping",
    "ReliableSpout",
    "Spout",
    "Stream",
    "TicklessBatchingBolt",
    "Topology",
    "Tuple",
]

_ACKERS = ("topology.acker.executors", "topology.ackers")


class _Component:
    """What streamparse's components know of themselves."""

    delegate: Any
    _reported: dict[str, AssignableMetrics] | None = None

    @property
    def context(self) -> TopologyContext:
        """streamparse has a dict here."""
        return self.delegate.context  # type: ignore[no-any-return]

    @property
    def storm_conf(self) -> dict[str, Any]:
        return self.context.get_cluster_config()

    @property
    def topology_name(self) -> str:
        return self.context.get_topology_name()

    @property
    def component_name(self) -> str:
        return self.context.get_component_id()

    @property
    def task_id(self) -> int:
        return self.context.get_task_id()

    @property
    def debug(self) -> bool:
        return bool(self.storm_conf.get(api_constants.TOPOLOGY_DEBUG))

    def raise_exception(self, exception: BaseException, tup: Tuple | None = None) -> None:
        """Log an exception, and the tuple that it is about. Nothing is raised."""
        about = f" ({tup.component}:{tup.stream} {tup.values!r})" if tup is not None else ""
        self.delegate.logger.error("%s%s", type(exception).__name__, about, exc_info=exception)

    def report_metric(self, name: str, value: float) -> None:
        """Report the latest value of a metric."""
        if self._reported is None:
            self._reported = {}
        if name not in self._reported:
            self._reported[name] = AssignableMetrics(value)
            self.context.register_metric(name, self._reported[name], 60)
        self._reported[name].update(value)


class Spout(_Component, api.Spout):
    """As streamparse's: `next_tuple()`, and `emit(values, tup_id=…)` for tuples that are acked."""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        par: int | None = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        return super().spec(name=name, par=par or 1, config=config, optional_outputs=optional_outputs)


class ReliableSpout(Spout):
    """Keeps what it has emitted until it is acked, and emits again what fails, up to `max_fails` times.

    In memory: what is in flight when its process dies is for the source to give again.
    """

    max_fails = 3

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.unacked_tuples: dict[Any, tuple[Any, ...]] = {}
        self.failed_tuples: Counter[Any] = Counter()

    def emit(
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str = Stream.DEFAULT_STREAM_ID,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        """As `Spout.emit`.

        Raises:
            ValueError: no `tup_id`.
        """
        if tup_id is None:
            raise ValueError("a ReliableSpout must be given a tup_id with each tuple")
        self.unacked_tuples[tup_id] = (tup, stream, direct_task)
        return super().emit(tup, tup_id, stream, direct_task, need_task_ids)

    def ack(self, tup_id: Any) -> None:
        self.unacked_tuples.pop(tup_id, None)
        self.failed_tuples.pop(tup_id, None)

    def fail(self, tup_id: Any) -> None:
        if tup_id not in self.unacked_tuples:
            return
        if self.failed_tuples[tup_id] >= self.max_fails:
            self.logger.error("given up after %d failures: tuple %r", self.max_fails + 1, tup_id)
            self.ack(tup_id)
            return
        self.failed_tuples[tup_id] += 1
        tup, stream, direct_task = self.unacked_tuples[tup_id]
        self.emit(tup, tup_id, stream, direct_task)


class Bolt(_Component, api.Bolt):
    """As streamparse's: what is emitted is anchored to the tuple in hand, which is acked when `process()` returns."""

    auto_ack = True
    auto_anchor = True
    auto_fail = True

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int | None = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        return super().spec(name=name, inputs=inputs, par=par or 1, config=config, optional_outputs=optional_outputs)


class BatchingBolt(Bolt):
    """Collects tuples by `group_key()` and processes them together, at every so many ticks.

    Set `topology.tick.tuple.freq.secs`. A batch is acked when all of it is processed; if `process_batch()` raises, its
    group and those that come after it fail. What is emitted is anchored to the tuples of its group.
    """

    ticks_between_batches = 1
    acks_batches = anchors_batches = True
    """`auto_ack` and `auto_anchor` of a subclass: the engine must not ack a tuple when `process()` has only kept it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.acks_batches = bool(cls.__dict__.get("auto_ack", cls.acks_batches))
        cls.anchors_batches = bool(cls.__dict__.get("auto_anchor", cls.anchors_batches))
        cls.auto_ack = cls.auto_anchor = False

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self._batches: dict[Any, list[Tuple]] = {}
        self._anchors: list[Tuple] = []
        self._ticks = 0

    def group_key(self, tup: Tuple) -> Any:
        """What tuples of one group have in common; all are one group unless this is overridden."""
        return None

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        """Called with all tuples of a group. Must be implemented."""
        raise NotImplementedError(f"{type(self).__name__} does not implement process_batch()")

    def process(self, tup: Tuple) -> None:
        self._batches.setdefault(self.group_key(tup), []).append(tup)

    def process_tick(self, tup: Tuple) -> None:
        self._ticks += 1
        if self._ticks >= self.ticks_between_batches:
            self._ticks = 0
            self.process_batches()

    def process_batches(self) -> None:
        """Process what was collected, group by group."""
        batches, self._batches = self._batches, {}
        while batches:
            key = next(iter(batches))
            self._anchors = batches[key]
            try:
                self.process_batch(key, batches[key])
            except Exception:
                for tup in itertools.chain.from_iterable(batches.values()) if self.auto_fail else ():
                    self.fail(tup)
                raise
            finally:
                self._anchors = []
            for tup in batches.pop(key):
                if self.acks_batches:
                    self.ack(tup)

    def emit(
        self,
        tup: Sequence[Any],
        stream: str = Stream.DEFAULT_STREAM_ID,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        if anchors is None and self.anchors_batches:
            anchors = self._anchors
        return super().emit(tup, stream, anchors, direct_task, need_task_ids)


BatchingBolt.auto_ack = BatchingBolt.auto_anchor = False


class TicklessBatchingBolt(BatchingBolt):
    """A `BatchingBolt` by time: its ticks come every `secs_between_batches`, whatever the configuration says."""

    secs_between_batches: float = 2

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int | None = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        ticks = {api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: round(cls.secs_between_batches * 1000)}
        return super().spec(name, inputs, par, {**(config or {}), **ticks}, optional_outputs)


class _StreamparseTopology(TopologyType):
    """Topologies that are at least once unless they have no ackers."""

    DEFAULT_TOPOLOGY_CONFIG: ClassVar[Mapping[str, str]] = {
        **TopologyType.DEFAULT_TOPOLOGY_CONFIG,
        api_constants.TOPOLOGY_RELIABILITY_MODE: api_constants.TopologyReliabilityMode.ATLEAST_ONCE,
    }

    def __new__(mcs, classname: str, bases: tuple[type, ...], class_dict: dict[str, Any]) -> _StreamparseTopology:
        if class_dict.get("__module__") == __name__:
            return type.__new__(mcs, classname, bases, class_dict)  # it has no spouts
        return super().__new__(mcs, classname, bases, class_dict)  # type: ignore[return-value]

    @classmethod
    def class_dict_to_topo_config(mcs, class_dict: Mapping[str, Any]) -> dict[str, Any]:
        config = class_dict.get("config", {})
        mode = api_constants.TOPOLOGY_RELIABILITY_MODE
        if mode not in config and any(str(config.get(key)) == "0" for key in _ACKERS):
            class_dict = {**class_dict, "config": {**config, mode: api_constants.TopologyReliabilityMode.ATMOST_ONCE}}
        return super().class_dict_to_topo_config(class_dict)


class Topology(api.Topology, metaclass=_StreamparseTopology):
    """As streamparse's: specs as attributes, and `config`."""
