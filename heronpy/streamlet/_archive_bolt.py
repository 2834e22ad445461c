"""The bolt of an archive: writes elements to files, which appear together, and then acks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from heronpy.api import Tuple
from heronpy.api.metrics import AssignableMetrics
from heronpy.plan import COMPLETE_BEFORE_METRIC
from heronpy.streamlet._bolts import StageBolt
from heronpy.streamlet.graph import ArchiveNode
from heronpy.windows import END, NEVER

if TYPE_CHECKING:
    from heronpy.archive import ArchiveWriter


class ArchiveBolt(StageBolt):
    """One writer of an archive. Elements go on at once; they are replayed until they are in the archive.

    Effectively once, those that came after a checkpoint may be written again after a restore, under the same ids.
    """

    commit_every_ms = 2000
    commit_tuples = 100_000

    def set_up(self) -> None:
        from heronpy.archive import ArchiveWriter

        node = self.stage.head.node
        assert isinstance(node, ArchiveNode)
        directory = self.definition.directory
        path = node.path or (directory / "archive" / node.archive_name if directory else None)
        assert path is not None, "the planner refuses an archive without a place"
        self.commits = True
        context = self.task.context
        self._complete_before_ms = AssignableMetrics(None)
        context.register_metric(COMPLETE_BEFORE_METRIC, self._complete_before_ms, 5)
        self._writer: ArchiveWriter = ArchiveWriter(
            path,
            task=str(context.get_this_task_index()),
            run=context.get_topology_id(),
            tasks=len(context.get_component_tasks(context.get_component_id()) or ()),
            batch_length_ms=self.definition.batch_length_ms,
            codec=node.codec,
            dead_letter=self.task.dead_letter_of(self.stage.name),
        )

    def taker(self) -> Callable[[Tuple], None]:
        add, put, place, done = self._writer.add, self.put, self.place, self.done

        def take(tup: Tuple) -> None:
            element, time_ms, id = tup.values
            add(id, time_ms, element)
            place.time_ms, place.id, place.anchors = time_ms, id, [tup]
            put(element)
            done(tup)

        return take

    def flush(self) -> None:
        self._writer.commit()
        self._report_progress()

    def cleanup(self) -> None:
        super().cleanup()
        self._writer.close()

    def _report_progress(self) -> None:
        """Say how far the archive is complete, as far as this task knows. Only with nothing uncommitted."""
        low = self.upstream.low
        if low != NEVER:
            self._writer.progress(None if low == END else low)
            if low != END:  # what has ended is not at a time
                self._complete_before_ms.update(low)
