"""What the tasks of all stages share: dead letters, clocks, sinks, transform operators, logging, checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from heronpy.api import TopologyReliabilityMode, api_constants
from heronpy.api.metrics import CountMetric
from heronpy.api.state import State
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Detached
from heronpy.config import ALLOW_DROPPED_STATE, is_set, takes_checkpoints
from heronpy.connectors import SinkContext, SinkWriter
from heronpy.connectors.checkpointed_output import CheckpointedOutput
from heronpy.errors import CheckpointError, ConfigError, is_shortage
from heronpy.plan import chain
from heronpy.shown import said, shown
from heronpy.streamlet._definition import Definition
from heronpy.streamlet._memory import Memory
from heronpy.streamlet._stages import Exit, Stage
from heronpy.streamlet.operators import Place, Put, TransformContext, Transformer
from heronpy.windows import END, Clock, Sent

log = logging.getLogger(__name__)

WATERMARK_EVERY_MS = 200
DEAD_LETTERS = "dead-letter-count"
"""Metric: rows and elements that were set aside."""


def now_ms() -> int:
    """A time that only goes forward."""
    return time.monotonic_ns() // 1_000_000


class TaskContext(TransformContext):
    """The context of a transform operator."""

    def __init__(self, stage: str, context: TopologyContext, state: State) -> None:
        super().__init__()
        self._stage = stage
        self._context = context
        self._state = state

    def get_task_id(self) -> int:
        return self._context.get_task_id()

    def get_config(self) -> dict[str, Any]:
        return self._context.get_cluster_config()

    def get_stream_name(self) -> str:
        return self._stage

    def get_num_partitions(self) -> int:
        return len(self._context.get_component_tasks(self._context.get_component_id()) or ())

    def get_partition_index(self) -> int:
        return self._context.get_this_task_index()

    def get_state(self) -> State:
        return self._state


class StageTask:
    """One task's side of a stage. The spout or bolt that owns it says how elements leave."""

    def __init__(
        self, definition: Definition, context: TopologyContext, logger: logging.Logger, state: State | None
    ) -> None:
        """Begin, in `initialize`.

        Args:
            definition: of the stage.
            context: the task's.
            logger: the task's.
            state: what `init_state` was given; None if it was not called: a component that delegates to this one
                need not have it.

        Raises:
            ConfigError: a policy for exceptions that loses elements, or checkpoints without the operators' state.
        """
        config = context.get_cluster_config()
        self.saved = takes_checkpoints(config)
        """Whether state is in checkpoints."""
        self.exact = config.get(api_constants.TOPOLOGY_RELIABILITY_MODE) == TopologyReliabilityMode.EFFECTIVELY_ONCE
        """Whether all that must not be lost is in them, and nothing waits for acks."""
        if self.saved and not self.exact and config.get("topology.exception.policy") == "fail":
            raise ConfigError(
                "topology.exception.policy fail, with checkpoints, would lose what windows make: leave it at restart, "
                "or have failing elements set aside by set_pipeline(directory)"
            )
        if self.saved and state is None:
            raise ConfigError(
                "checkpoints would not have the state of this stage's operators: init_state() was not called. A "
                "component that delegates to it must be a StatefulComponent, and pass its state on"
            )
        self.memory = Memory(state, saved=self.saved)
        self.definition = definition
        self.stage = definition.stage
        self.context = context
        self.logger = logger
        self._check_owners(is_set(config, ALLOW_DROPPED_STATE))
        self.place = Place()
        self.writers: list[SinkWriter] = []
        """Open sinks of this stage, unless they commit with checkpoints. The owner flushes them."""
        self._outputs: list[CheckpointedOutput] = []
        self.exit_of: Callable[[Exit], Put] = self._nowhere
        """What sends elements on a stream. The owner sets it."""
        self._transformers: dict[str, Transformer] = {}
        """By stage."""
        self._clocks: dict[str, Clock] = {}
        self._sent = Sent(WATERMARK_EVERY_MS)
        self._dead = CountMetric()
        context.register_metric(DEAD_LETTERS, self._dead, 10)
        self._dead_letters: dict[str, Any] = {}
        logger.info("runs %s", chain(self.stage.operators()))

    def _check_owners(self, drops: bool) -> None:
        """Refuse to lose what an operator has saved that this stage does not have.

        Raises:
            CheckpointError: there is such state.
        """
        own = {name for step in self.stage.head.steps() for name in (step.name, f"{step.name}/ids")}
        lost = sorted(self.memory.owners() - own)
        if lost and not drops:
            raise CheckpointError(
                f"component {self.context.get_component_id()!r}: the checkpoint has state of operators "
                f"{', '.join(map(repr, lost))}, which it does not have: give them the names that they had, or leave it "
                f"behind with {ALLOW_DROPPED_STATE}"
            )
        for name in lost:
            self.logger.warning("state of operator %s, which is not there, is dropped", name)
            self.memory.drop(name)

    # What the engine's elements go through

    def failed(self, stage: str, element: Any, error: Exception) -> None:
        """User code raised on an element: it is set aside in the job's directory; without one the error is raised.

        So is a shortage: the element is not to blame, and comes again.
        """
        if self.definition.directory is None or is_shortage(error):
            raise error
        self.dead_letter_of(stage)(stage, element, said(error))

    def dead_letter_of(self, stage: str) -> Callable[[str, Any, str], None]:
        """What sets rows aside for a stage."""
        directory = self.definition.directory
        if directory is None:
            return self._warn
        if stage not in self._dead_letters:
            from heronpy.archive import DeadLetters

            self._dead_letters[stage] = DeadLetters(directory, stage)
        letters = self._dead_letters[stage]

        def set_aside(where: str, row: Any, reason: str) -> None:
            self._dead.incr()
            letters(where, row, reason)

        return set_aside

    def _warn(self, where: str, row: Any, reason: str) -> None:
        self._dead.incr()
        self.logger.warning("%s: %s; left out: %s", where, reason, shown(row))

    def _nowhere(self, exit: Exit) -> Put:
        raise AssertionError(f"no sender of {exit.stream}")

    def clock_of(self, stage: str) -> Clock:
        """The clock of an event-time node, or of what the stage reads."""
        if stage not in self._clocks:
            lateness, idle = self.definition.max_lateness_ms, self.definition.idle_timeout_ms
            self._clocks[stage] = Clock(lateness, idle, now_ms())
        return self._clocks[stage]

    def transformer_of(self, stage: str, operator: Any) -> Callable[[Any], list[Any]]:
        """What gives all that a transform operator makes of an element."""
        origin = Detached(self.context.get_component_id(), stage, self.context.get_task_id(), ("element",))
        made = Transformer(operator, lambda: TaskContext(stage, self.context, self.memory.of(stage)), origin)
        self._transformers[stage] = made
        return made

    def writer_of(self, stage: str, sink: Any) -> Put:
        """What takes the elements of a sink."""
        context = self.context
        sink_context = SinkContext(
            name=stage,
            task_index=context.get_this_task_index(),
            config=context.get_cluster_config(),
            topology_id=context.get_topology_id(),
            epoch=context.restore_epoch,
        )
        if self.exact:
            output = CheckpointedOutput(sink, sink_context, context, state=f"prepared by {stage}")
            self._outputs.append(output)
            return output.write
        writer: SinkWriter = sink.open(sink_context)
        self.writers.append(writer)
        return writer.write

    def logger_of(self, stage: str) -> Put:
        """What logs elements."""
        info = logging.getLogger(f"{self.logger.name}.{stage}").info
        return lambda element: info("%s", element)

    # Watermarks

    def watermark_due(self, head: int, *, hurry: bool = False) -> int | None:
        """The stage's watermark, if it is to be sent now.

        Args:
            head: the watermark of what comes into the stage.
            hurry: also if one was sent a moment ago.
        """
        if not self.stage.watermarks_out:
            return None
        now = now_ms()
        low = END
        for stage in self.stage.clocks:
            own = head if stage == self.stage.name and stage not in self._clocks else self._own(stage, head, now)
            low = min(low, own)
        return low if self._sent.due(low, now, hurry=hurry) else None

    def _own(self, stage: str, head: int, now: int) -> int:
        # What has ended has ended for all clocks after it: nothing that could move them will come.
        return END if head == END else self.clock_of(stage).watermark(now)

    def paused(self, for_ms: int) -> None:
        """For so long the source of this stage was not asked: see `Clock.paused`."""
        for clock in self._clocks.values():
            clock.paused(for_ms)

    # Checkpoints

    def prepare(self, checkpoint_id: int) -> None:
        """Have sinks prepare what they were given.

        Raises:
            HeronError: one cannot.
        """
        for output in self._outputs:
            output.prepare(checkpoint_id)

    def commit(self, checkpoint_id: int) -> None:
        """A checkpoint is committed: make visible what was prepared until then.

        Raises:
            HeronError: a sink cannot.
        """
        for output in self._outputs:
            output.commit(checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        """All tasks go back to a checkpoint: forget what was prepared since.

        Raises:
            HeronError: a sink cannot.
        """
        for output in self._outputs:
            output.abort(checkpoint_id)

    def go_back(self, stage: Stage, saved: Mapping[Any, Any]) -> None:
        """Have new transform operators begin with what a checkpoint has of them; all else stays as it is.

        Args:
            stage: this one, unpickled anew.
            saved: the state of the task.
        """
        for step in stage.head.steps():
            if (transformer := self._transformers.get(step.name)) is not None:
                self.memory.go_back(step.name, saved)
                transformer.set_up(step.node.operator)  # type: ignore[attr-defined]  # transform operators are nodes that have one

    def close(self) -> None:
        """Let go of sinks and dead letters."""
        for output in self._outputs:
            output.close()
        for writer in self.writers:
            writer.close()
        for letters in self._dead_letters.values():
            letters.close()


__all__ = ["DEAD_LETTERS", "StageTask", "TaskContext", "now_ms"]
