"""What every spout can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heronpy.api.component.base_component import BaseComponent
from heronpy.api.component.component_spec import HeronComponentSpec, class_path, outputs_of
from heronpy.api.stream import Stream


class BaseSpout(BaseComponent):
    """The spout's side towards the engine."""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Use this spout in a topology.

        Args:
            name: the component's name; None takes the name of the topology's attribute.
            par: number of tasks.
            config: configuration of this component, over the topology's.
            optional_outputs: more fields and streams than the class declares in `outputs`.
        """
        return HeronComponentSpec(
            name, class_path(cls), is_spout=True, par=par, outputs=outputs_of(cls, optional_outputs), config=config
        )

    def emit(
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str = Stream.DEFAULT_STREAM_ID,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        """Send a tuple into the topology; returns the ids of the tasks that it goes to.

        Args:
            tup: its values, in the order of the stream's fields.
            tup_id: any object: it comes back in `ack()` or `fail()`. None: the tuple is not tracked.
            stream: the stream's id.
            direct_task: the receiving task, for direct streams.
            need_task_ids: for compatibility; the ids are returned anyway.
        """
        task_ids: list[int] = self.delegate.emit(tup, tup_id, stream, direct_task, need_task_ids)
        return task_ids

    def send_watermark(self, watermark_ms: int) -> None:
        """Say that no tuple of an earlier time will come from this task, as far as it knows; behind what was emitted.

        For a spout that declares `topology.component.watermark.field`. Repeat it every second, since none is replayed;
        `heronpy.windows.END` says that no task need wait for this one now.
        """
        self.delegate.send_watermark(watermark_ms)
