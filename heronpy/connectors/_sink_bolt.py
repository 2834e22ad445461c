"""The bolt of a sink."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, Final

import cloudpickle

from heronpy.api import Bolt, HeronComponentSpec, ITwoPhaseStatefulComponent, State, Stream, TopologyContext, Tuple
from heronpy.api.api_constants import (
    TOPOLOGY_RELIABILITY_MODE,
    TOPOLOGY_TICK_TUPLE_FREQ_MS,
    TOPOLOGY_TICK_TUPLE_FREQ_SECS,
    TopologyReliabilityMode,
)
from heronpy.connectors.checkpointed_output import CheckpointedOutput
from heronpy.connectors.spi import Sink, SinkContext, SinkWriter
from heronpy.errors import UserCodeError
from heronpy.shown import said

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
    second, every thousand, and before a checkpoint.
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


class SinkTask(Bolt, ITwoPhaseStatefulComponent):
    """One task of a `SinkBolt`."""

    def init_state(self, state: State) -> None:
        pass  # it declares its own

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        try:
            bolt: SinkBolt = pickle.loads(config[SINK_KEY])
        except Exception as e:  # unpickling runs the user's code
            raise UserCodeError(f"the sink cannot be unpickled: {said(e)}") from e
        self._field = bolt.field
        self._held: list[Tuple] = []
        self._written = 0
        """Elements since the last checkpoint."""
        sink_context = SinkContext(
            name=context.get_component_id(),
            task_index=context.get_this_task_index(),
            config=config,
            topology_id=context.get_topology_id(),
            epoch=context.restore_epoch,
        )
        self._output: CheckpointedOutput | None = None
        self._writer: SinkWriter | None = None
        if config.get(TOPOLOGY_RELIABILITY_MODE) == TopologyReliabilityMode.EFFECTIVELY_ONCE:
            self._output = CheckpointedOutput(bolt.sink, sink_context, context, state="prepared")
            self._write = self._output.write
        else:
            self._writer = bolt.sink.open(sink_context)
            self._write = self._writer.write

    def process(self, tup: Tuple) -> None:
        self._write(self._element(tup))
        self._written += 1
        if self._output is not None:
            self.ack(tup)  # the checkpoint has it, or the rollback repeats it
            return
        self._held.append(tup)
        if len(self._held) >= FLUSH_TUPLES:
            self._flush()

    def process_tick(self, tup: Tuple) -> None:
        if self._output is None:
            self._flush()

    def pre_save(self, checkpoint_id: str) -> None:
        if self._output is not None:
            self._output.prepare(int(checkpoint_id))
            self._written = 0
        else:
            self._flush()  # no rollback to this checkpoint brings it again: its emitter may remember that

    def post_save(self, checkpoint_id: str) -> None:
        if self._output is not None:
            self._output.commit(int(checkpoint_id))

    def pre_restore(self, checkpoint_id: str) -> None:
        if self._output is not None:
            self._output.abort(int(checkpoint_id))

    def cleanup(self) -> None:
        if self._output is not None:
            if self._written:
                self.logger.warning("%d elements since the last checkpoint are not committed", self._written)
            self._output.close()
        elif self._writer is not None:
            self._flush()
            self._writer.close()

    def _element(self, tup: Tuple) -> Any:
        if self._field is not None:
            return tup[self._field]
        return tup.values[0] if len(tup.values) == 1 else tup.as_dict()

    def _flush(self) -> None:
        if not self._held:
            return
        assert self._writer is not None
        self._writer.flush()
        self._written = 0
        held, self._held = self._held, []
        for tup in held:
            self.ack(tup)
