"""The bolt of a sink."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import cloudpickle

from heronpy.api import Bolt, HeronComponentSpec, ITwoPhaseStatefulComponent, State, Stream, TopologyContext, Tuple
from heronpy.api.api_constants import (
    TOPOLOGY_RELIABILITY_MODE,
    TOPOLOGY_TICK_TUPLE_FREQ_MS,
    TOPOLOGY_TICK_TUPLE_FREQ_SECS,
    TopologyReliabilityMode,
)
from heronpy.connectors.spi import Sink, SinkContext, SinkWriter, TransactionalSinkWriter
from heronpy.errors import UserCodeError

SINK_KEY: Final = "connectors.sink"
"""Configuration key of a component: its pickled sink and field."""
FLUSH_TUPLES: Final = 1000
"""Without checkpoints so many tuples are flushed together, at most …"""
FLUSH_EVERY_MS: Final = 1000
"""… and at least so often, unless the component is configured with other ticks."""


class SinkBolt:
    """A sink as a bolt: `builder.add_bolt("out", SinkBolt(JsonLinesSink("/data/out")), 2, {words: Grouping.SHUFFLE})`.

    Effectively once, what comes between two checkpoints becomes visible when the second has been committed, exactly
    once if the sink can (`Sink.exactly_once`). In the other modes tuples are acked when they have been flushed, every
    second or every thousand.
    """

    def __init__(self, sink: Sink, *, field: str | None = None) -> None:
        """Describe the bolt.

        Args:
            sink: Where its elements go. It travels with the topology.
            field: Elements are the values of this field. Without it they are the value of a tuple's only field, or
                dicts of several.
        """
        self.sink = sink
        self.field = field

    def __repr__(self) -> str:
        return f"SinkBolt({self.sink!r})"

    def spec(
        self,
        name: str | None = None,
        inputs: Any = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Use it in a topology; as of `Bolt.spec`."""
        given = dict(config or {})
        if not {TOPOLOGY_TICK_TUPLE_FREQ_MS, TOPOLOGY_TICK_TUPLE_FREQ_SECS} & given.keys():
            given[TOPOLOGY_TICK_TUPLE_FREQ_MS] = FLUSH_EVERY_MS
        given[SINK_KEY] = cloudpickle.dumps(self)
        return SinkTask.spec(name, inputs, par, given, optional_outputs)


class Pending(NamedTuple):
    """What was prepared, and may be uncommitted. In checkpoints a plain tuple."""

    checkpoint_id: int
    task: int
    """Index of the task that prepared it."""
    prepared: Any


class SinkTask(Bolt, ITwoPhaseStatefulComponent):
    """One task of a `SinkBolt`."""

    def init_state(self, state: State) -> None:
        pass  # it declares its own

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        try:
            bolt: SinkBolt = pickle.loads(config[SINK_KEY])
        except Exception as e:  # unpickling runs the user's code
            raise UserCodeError(f"the sink cannot be unpickled: {type(e).__name__}: {e}") from e
        self._field = bolt.field
        self._task = context.get_this_task_index()
        self._held: list[Tuple] = []
        self._written = 0
        """Elements since the last checkpoint."""
        self._writer: SinkWriter | None = None
        self._transactions: TransactionalSinkWriter | None = None
        self._checkpoints = config.get(TOPOLOGY_RELIABILITY_MODE) == TopologyReliabilityMode.EFFECTIVELY_ONCE
        sink_context = SinkContext(
            name=context.get_component_id(),
            task_index=self._task,
            config=config,
            topology_id=context.get_topology_id(),
            epoch=context.restore_epoch,
        )
        if self._checkpoints and bolt.sink.exactly_once:
            self._pending = context.task_state("prepared", default=(), split=split_pending, merge=merge_pending)
            self._transactions = bolt.sink.open_transactional(sink_context)
            self._transactions.recover([each.prepared for each in self._uncommitted()])
            self._pending.value = ()
            self._write = self._transactions.write
        else:
            if self._checkpoints:
                self.logger.warning("%r writes at least once: a rollback repeats what it has written", bolt.sink)
            self._writer = bolt.sink.open(sink_context)
            self._write = self._writer.write

    def process(self, tup: Tuple) -> None:
        self._write(self._element(tup))
        self._written += 1
        if self._checkpoints:
            self.ack(tup)  # the checkpoint has it, or the rollback repeats it
            return
        self._held.append(tup)
        if len(self._held) >= FLUSH_TUPLES:
            self._flush()

    def process_tick(self, tup: Tuple) -> None:
        if not self._checkpoints:
            self._flush()

    def pre_save(self, checkpoint_id: str) -> None:
        """Prepare what came since the last checkpoint. What was prepared for one that failed waits with it."""
        if self._transactions is None:
            self._flush()
            return
        number = int(checkpoint_id)
        prepared = self._transactions.prepare(number)
        self._written = 0
        if prepared is not None:
            self._pending.value = (*self._pending.value, (number, self._task, prepared))

    def post_save(self, checkpoint_id: str) -> None:
        """Commit what was prepared for this checkpoint and for those before it."""
        if self._transactions is None:
            return
        number = int(checkpoint_id)
        for each in self._uncommitted():
            if each.checkpoint_id <= number:
                self._transactions.commit(each.prepared)
        self._pending.value = tuple(tuple(each) for each in self._uncommitted() if each.checkpoint_id > number)

    def pre_restore(self, checkpoint_id: str) -> None:
        """Abort what was prepared after a checkpoint: nobody will commit it."""
        if self._transactions is None:
            return
        number = int(checkpoint_id)
        for each in self._uncommitted():
            if each.checkpoint_id > number:
                self._transactions.abort(each.prepared)

    def cleanup(self) -> None:
        if self._transactions is not None:
            if self._written:
                self.logger.warning("%d elements since the last checkpoint are not committed", self._written)
            self._transactions.close()
        elif self._writer is not None:
            if not self._checkpoints:
                self._flush()
            self._writer.close()

    def _uncommitted(self) -> list[Pending]:
        return [Pending(*each) for each in self._pending.value]

    def _element(self, tup: Tuple) -> Any:
        if self._field is not None:
            return tup[self._field]
        return tup.values[0] if len(tup.values) == 1 else tup.as_dict()

    def _flush(self) -> None:
        if not self._written and not self._held:
            return
        assert self._writer is not None
        self._writer.flush()
        self._written = 0
        held, self._held = self._held, []
        for tup in held:
            self.ack(tup)


def merge_pending(values: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """What all tasks had."""
    return tuple(each for value in values for each in value)


def split_pending(value: tuple[Any, ...], tasks: int) -> list[tuple[Any, ...]]:
    """For each of another number of tasks; what one task had prepared stays together and in its order."""
    return [tuple(each for each in value if Pending(*each).task % tasks == index) for index in range(tasks)]
