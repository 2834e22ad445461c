"""The spout of a source."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import cloudpickle

from heronpy.api import HeronComponentSpec, ITwoPhaseStatefulComponent, Spout, State, Stream, TopologyContext
from heronpy.api.api_constants import (
    TOPOLOGY_COMPONENT_WATERMARK_FIELD,
    TOPOLOGY_EXCEPTION_POLICY,
    TOPOLOGY_MAX_SPOUT_PENDING,
    TOPOLOGY_RELIABILITY_MODE,
    TopologyExceptionPolicy,
    TopologyReliabilityMode,
)
from heronpy.api.metrics import CountMetric
from heronpy.config import ALLOW_LOSSY_SPOUTS, INEXACT_KEY, is_set, takes_checkpoints
from heronpy.connectors._source_times import SourceTimes
from heronpy.connectors.spi import Record, Source, SourceContext, SourceReader
from heronpy.connectors.split_set import SplitSet, check_forgetting
from heronpy.connectors.split_shares import PENDING_MAX, SplitShares
from heronpy.errors import ConfigError, TupleError, UserCodeError
from heronpy.files import local_path
from heronpy.shown import said

SOURCE_KEY: Final = "connectors.source"
"""Configuration key of a component: its pickled source and options."""
DEAD_LETTERS: Final = "dead_letters"
"""Stream of malformed rows."""
TIME_FIELD: Final = "time_ms"
READ_LIMIT: Final = 100
"""Records that are emitted together."""


class SourceSpout:
    """A source as a spout: `builder.add_spout("lines", SourceSpout(TextFile("/data/*.txt")), 2)`.

    It emits `value`, `time_ms` (of the record, in ms since the epoch) and `id`, and to the stream `dead_letters` what
    is malformed: `where`, `row` and `reason`, at least once.

    Effectively once, positions are state: after a rollback each split goes on where the checkpoint had it, also with
    another number of tasks. At least once, a record is acked to its source when its tuples are, and replayed when they
    fail.

    Of a source with event times it sends watermarks of `time_ms`, which bolts with this timestamp field follow, unless
    its configuration has an empty `topology.component.watermark.field`.
    """

    def __init__(
        self,
        source: Source,
        *,
        directory: str | os.PathLike[str] | None = None,
        discover_every_s: float | None = None,
        idle_after_s: float = 60.0,
        forget_after_s: float | None = None,
    ) -> None:
        """Describe the spout.

        Args:
            source: Where its records come from. It travels with the topology.
            directory: Where it is not effectively once: a shared directory, in which positions outlive the process.
                Without it a restarted task begins anew, unless its source remembers what was acked.
            discover_every_s: Effectively once: how often to look for new splits, and for more in those that had ended;
                None: as the source does, most of them only when the task begins.
            idle_after_s: A split without records for so long is idle: no watermark waits for it.
            forget_after_s: With `discover_every_s`, of files: the position of one that has been gone for so long is
                forgotten. If it is there again later, it is read again. None: positions are kept for ever.

        Raises:
            ConfigError: `forget_after_s` of another source, or of one that is not followed.
        """
        check_forgetting(source, discover_every_s, forget_after_s)
        self.source = source
        self.directory = None if directory is None else local_path("the directory of positions", directory)
        self.discover_every_s = discover_every_s
        self.idle_after_s = idle_after_s
        self.forget_after_s = forget_after_s

    def __repr__(self) -> str:
        return f"SourceSpout({self.source!r})"

    def spec(
        self,
        name: str | None = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Use it in a topology; as of `Spout.spec`."""
        given = {**(config or {}), SOURCE_KEY: cloudpickle.dumps(self)}
        if self.source.timed:
            given.setdefault(TOPOLOGY_COMPONENT_WATERMARK_FIELD, TIME_FIELD)
        if not self.source.rewindable:
            given[INEXACT_KEY] = f"{self.source!r} has no positions to go back to"
        return SourceTask.spec(name, par, given, optional_outputs)


class _Letter(NamedTuple):
    """What is malformed."""

    where: str
    row: Any
    reason: str


class SourceTask(Spout, ITwoPhaseStatefulComponent):
    """One task of a `SourceSpout`."""

    kept_through_rollbacks = True
    outputs = ["value", TIME_FIELD, "id", Stream(["where", "row", "reason"], name=DEAD_LETTERS)]  # noqa: RUF012

    def init_state(self, state: State) -> None:
        pass  # it declares its own

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        try:
            spout: SourceSpout = pickle.loads(config[SOURCE_KEY])
        except Exception as e:  # unpickling runs the user's code
            raise UserCodeError(f"the source cannot be unpickled: {said(e)}") from e
        mode = config.get(TOPOLOGY_RELIABILITY_MODE)
        self._context = context
        self._dead = CountMetric()
        context.register_metric("dead-letter-count", self._dead, 10)
        self._source = spout.source
        task_index, num_tasks = self._share()
        self._source_context = source_context = SourceContext(
            name=context.get_component_id(),
            task_index=task_index,
            num_tasks=num_tasks,
            config=config,
            directory=spout.directory,
            dead_letter=self._dead_letter,
        )
        self._splits: SplitSet | None = None
        self._reader: SourceReader | None = None
        self._times: SourceTimes | None = None
        self._shares: SplitShares | None = None
        """Where windows that follow this source hold its records."""
        if context.sends_watermarks():
            limit = config.get(TOPOLOGY_MAX_SPOUT_PENDING) if mode == TopologyReliabilityMode.ATLEAST_ONCE else None
            pending_max = int(limit) if limit else None
            self._times = SourceTimes(spout.idle_after_s, pending_max, lambda watermark: self.send_watermark(watermark))
            if mode == TopologyReliabilityMode.ATLEAST_ONCE and not takes_checkpoints(config):
                self._shares = SplitShares(pending_max or PENDING_MAX)
        exact = mode == TopologyReliabilityMode.EFFECTIVELY_ONCE
        if exact and not spout.source.rewindable and is_set(config, ALLOW_LOSSY_SPOUTS):
            exact = False  # records are acked to the source as they are emitted
        if exact:
            if not spout.source.rewindable:
                raise ConfigError(
                    f"{spout.source!r} has no positions to go back to: it cannot be read effectively once"
                )
            self._positions = context.split_state("positions")
            self._splits = SplitSet(
                spout.source,
                self._positions,
                source_context,
                discover_every_s=spout.discover_every_s or spout.source.discover_every_s,
                idle_after_s=spout.idle_after_s,
                forget_after_s=spout.forget_after_s,
            )
            context.register_gauge("idle-splits", lambda: None if self._splits is None else len(self._splits.idle()))
        else:
            self._tracking = mode == TopologyReliabilityMode.ATLEAST_ONCE
            policy = config.get(TOPOLOGY_EXCEPTION_POLICY)
            self._goes_on = policy == TopologyExceptionPolicy.FAIL and mode != TopologyReliabilityMode.EFFECTIVELY_ONCE
            self._queue: deque[Record] = deque()
            self._replays: deque[Record | _Letter] = deque()
            """What failed. It comes before what is newer, and before the next watermark: windows may have lost it."""
            self._out: dict[int, Record | _Letter] = {}
            """What is not acked, by number: ids come again, for example where a source was opened anew."""
            self._numbers = itertools.count()
            self._reader = spout.source.open(source_context)

    def next_tuple(self) -> None:
        if self._splits is not None:
            # All of them or none: a snapshot is taken between two calls.
            name, records, position = self._splits.read(READ_LIMIT)
            for value, time_ms, id, _ in records:
                self.emit([value, time_ms, id])
            if name is not None and position is not None:
                self._positions[name] = position
            if self._times is not None:
                apart = self._source.interleaved
                self._times.read((name if apart else "") if records else None)
                self._times.emitted(name if apart else None, records)
                self._times.asked(self._splits.names() if apart else None, ended=self._splits.ended)
            return
        assert self._reader is not None
        if not self._queue and not self._replays:
            if self._share() != (self._source_context.task_index, self._source_context.num_tasks):
                self._reader = self._opened_anew(self._reader)
            if not self._read(self._reader):
                return
        record = (self._replays or self._queue).popleft()
        if isinstance(record, _Letter):
            self._emit_letter(record)
            return
        if self._times is not None:
            self._times.emitted(self._reader.split_of(record), (record,))
        if self._tracking:
            self._out[number := next(self._numbers)] = record
            if self._shares is not None:
                self._shares.emitted(self._reader.split_of(record))
            self._emit_record(record, number)
        else:
            self._emit_record(record, None)
            self._reader.ack([record])
        if self._times is not None and self._times.pressing and not self._replays:
            self._times.mark(self._reader.splits())

    def _emit_record(self, record: Record, number: int | None) -> None:
        try:
            self.emit([record.value, record.time_ms, record.id], tup_id=number)
        except TupleError as error:  # a key without a stable hash: it would be refused each time
            if not self._goes_on:
                raise
            if number is not None:
                self.ack(number)
            self._dead_letter(record.id, record.value, str(error))

    def _read(self, reader: SourceReader) -> bool:
        """Read the next records, if there are some."""
        limit, paused = (READ_LIMIT, ()) if self._shares is None else self._shares.divide(reader, READ_LIMIT)
        self._queue.extend(reader.read(limit))
        if self._times is not None:
            self._times.read(reader.split_of(self._queue[0]) if self._queue else None)
            self._times.kept_back(paused)
            self._times.asked(reader.splits(), ended=not self._queue and reader.ended)
        return bool(self._queue)

    def _share(self) -> tuple[int, int]:
        """Index of this task, and how many there are: together they read everything."""
        tasks = self._context.get_component_tasks(self._context.get_component_id()) or ()
        return self._context.get_this_task_index(), len(tasks)

    def _opened_anew(self, reader: SourceReader) -> SourceReader:
        """A reader as that of a task that is restarted, since an update has changed the number of tasks.

        Records that are not acked are read again, by the task that has them now; malformed rows may count as read.
        """
        reader.close()
        if self._shares is not None:
            self._shares.forget()
        self._out = {number: each for number, each in self._out.items() if isinstance(each, _Letter)}
        task_index, num_tasks = self._share()
        self.logger.info("this is task %d of %d now: the source is opened anew", task_index, num_tasks)
        self._source_context = dataclasses.replace(self._source_context, task_index=task_index, num_tasks=num_tasks)
        return self._source.open(self._source_context)

    def pre_save(self, checkpoint_id: str) -> None:
        if self._splits is not None:
            self._splits.prepare(int(checkpoint_id))

    def post_save(self, checkpoint_id: str) -> None:
        if self._splits is not None:
            self._splits.commit(int(checkpoint_id))

    def ack(self, tup_id: Any) -> None:
        if self._reader is not None and isinstance(record := self._out.pop(tup_id, None), Record):
            self._settled(record)
            self._reader.ack([record])

    def fail(self, tup_id: Any) -> None:
        if self._reader is not None and (record := self._out.pop(tup_id, None)) is not None:
            self._settled(record)
            self._replays.append(record)

    def _settled(self, record: Record | _Letter) -> None:
        if self._shares is not None and self._reader is not None and isinstance(record, Record):
            self._shares.settled(self._reader.split_of(record))

    def close(self) -> None:
        if self._splits is not None:
            self._splits.close()
        if self._reader is not None:
            self._reader.close()

    def _dead_letter(self, where: str, row: Any, reason: str) -> None:
        self.logger.warning("%s: %s", where, reason)
        self._dead.incr()
        self._emit_letter(_Letter(where, row, reason))

    def _emit_letter(self, letter: _Letter) -> None:
        number = None
        if self._splits is None and self._tracking:
            self._out[number := next(self._numbers)] = letter
        self.emit([*letter], tup_id=number, stream=DEAD_LETTERS)
