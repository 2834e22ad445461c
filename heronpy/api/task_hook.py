"""Callbacks around everything that a task does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext
    from heronpy.api.tuple import Tuple


class EmitInfo(NamedTuple):
    """A tuple was emitted."""

    values: Any
    stream_id: str
    task_id: int
    """The task that emitted it."""
    out_tasks: list[int]
    """The tasks that it goes to."""


class SpoutAckInfo(NamedTuple):
    """A spout's tuple, and all that came of it, was processed."""

    message_id: Any
    spout_task_id: int
    complete_latency_ms: float


class SpoutFailInfo(NamedTuple):
    """A spout's tuple was failed, or timed out."""

    message_id: Any
    spout_task_id: int
    fail_latency_ms: float


class BoltExecuteInfo(NamedTuple):
    """A bolt's `process()` returned."""

    heron_tuple: Tuple
    executing_task_id: int
    execute_latency_ms: float


class BoltAckInfo(NamedTuple):
    """A bolt acked a tuple."""

    heron_tuple: Tuple
    acking_task_id: int
    process_latency_ms: float


class BoltFailInfo(NamedTuple):
    """A bolt failed a tuple."""

    heron_tuple: Tuple
    failing_task_id: int
    fail_latency_ms: float


class ITaskHook:
    """Override what you want to be notified of. Runs in the task's thread, so whatever it does costs throughput.

    Added to every component by its class path in `topology.auto.task.hooks`, or to one task with
    `context.add_task_hook()`.
    """

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called after the component's `initialize()`."""

    def clean_up(self) -> None:
        """Called when the task ends gracefully."""

    def emit(self, emit_info: EmitInfo) -> None:
        """A tuple was emitted."""

    def spout_ack(self, spout_ack_info: SpoutAckInfo) -> None:
        """A spout's tuple was acked."""

    def spout_fail(self, spout_fail_info: SpoutFailInfo) -> None:
        """A spout's tuple was failed or timed out."""

    def bolt_execute(self, bolt_execute_info: BoltExecuteInfo) -> None:
        """A bolt has processed a tuple."""

    def bolt_ack(self, bolt_ack_info: BoltAckInfo) -> None:
        """A bolt acked a tuple."""

    def bolt_fail(self, bolt_fail_info: BoltFailInfo) -> None:
        """A bolt failed a tuple."""
