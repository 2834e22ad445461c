"""What every bolt can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heronpy.api.component.base_component import BaseComponent
from heronpy.api.component.component_spec import HeronComponentSpec, class_path, outputs_of
from heronpy.api.stream import Stream
from heronpy.api.tuple import Tuple, TupleHelper


class BaseBolt(BaseComponent):
    """The bolt's side towards the engine."""

    auto_ack: bool = False
    """Ack every tuple when `process()` has returned."""
    auto_anchor: bool = False
    """Anchor what is emitted without `anchors` to the tuple in hand."""
    auto_fail: bool = False
    """As streamparse has it. The tuple in hand fails whenever `process()` raises, also without it."""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Use this bolt in a topology.

        Args:
            name: the component's name; None takes the name of the topology's attribute.
            inputs: `{spec: grouping}` for default streams, `{spec["stream"]: grouping}` for others; or a list of specs
                and `spec["stream"]`, divided by SHUFFLE.
            par: number of tasks.
            config: configuration of this component, over the topology's.
            optional_outputs: more fields and streams than the class declares in `outputs`.
        """
        return HeronComponentSpec(
            name,
            class_path(cls),
            is_spout=False,
            par=par,
            inputs=inputs,
            outputs=outputs_of(cls, optional_outputs),
            config=config,
        )

    def emit(
        self,
        tup: Sequence[Any],
        stream: str = Stream.DEFAULT_STREAM_ID,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        """Send a tuple on; returns the ids of the tasks that it goes to.

        Args:
            tup: its values, in the order of the stream's fields.
            stream: the stream's id.
            anchors: tuples that it was made of. If it is lost or failed, so are they.
            direct_task: the receiving task, for direct streams.
            need_task_ids: for compatibility; the ids are returned anyway.
        """
        task_ids: list[int] = self.delegate.emit(tup, stream, anchors, direct_task, need_task_ids)
        return task_ids

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """Whether this is a tick tuple."""
        return tup.stream == TupleHelper.TICK_TUPLE_ID

    def ack(self, tup: Tuple) -> None:
        """Say that a tuple is done with."""
        self.delegate.ack(tup)

    def fail(self, tup: Tuple) -> None:
        """Say that a tuple could not be processed; its spout is notified at once."""
        self.delegate.fail(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """Give a tuple its full timeout again, for work that takes long."""
        self.delegate.reset_timeout(tup)
