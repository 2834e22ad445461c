"""One Spark job: from input splits to files, with one shuffle per level of exchanges.

    parallelize(splits) → read, regions, ports → partitionBy → reduce, regions, ports → partitionBy → … → reports

Everything that a task needs comes in one broadcast, pickled by value, so that classes of a script reach the workers.
"""

from __future__ import annotations

import gc
import itertools
import operator
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from heronpy.connectors import Chunk, Split
from heronpy.errors import HeronError, UserCodeError
from heronpy.pipeline._regions import Port, region
from heronpy.pipeline.blocks import Packer, sliced, unpacked
from heronpy.pipeline.exchange import Block, Layout, Outbox, hash_of
from heronpy.pipeline.joins import JoinPort, JoinReducer
from heronpy.pipeline.masters import import_path
from heronpy.pipeline.memory import LIMIT_BYTES, Memory
from heronpy.pipeline.outputs import SinkPort, SinkReducer, StorePort, StoreReducer
from heronpy.pipeline.partials import BEFORE_MS, PartialsTask
from heronpy.pipeline.plan import BatchPlan
from heronpy.pipeline.reductions import (
    KeyedWindowPort,
    KeyedWindowReducer,
    KeyPort,
    KeyReducer,
    SendablePort,
    StateReducer,
    WindowPort,
    WindowReducer,
    emit,
)
from heronpy.pipeline.sessions import SessionPort, SessionReducer
from heronpy.pipeline.spill import Overflow, Reducer, local_directory
from heronpy.pipeline.task import Report, Task, file_of
from heronpy.pipeline.task_errors import sendable_errors
from heronpy.pipeline.unique import UniqueReducer
from heronpy.streamlet.graph import (
    JoinNode,
    ReduceByKeyAndWindowNode,
    ReduceByKeyNode,
    ReduceByWindowNode,
    SinkNode,
    StoreNode,
    is_sessions,
    reduces_sessions,
)
from heronpy.streamlet.operators import Push, Times

if TYPE_CHECKING:
    from pyspark import SparkContext

# A batch task makes millions of tuples and no cycles: the collector would look at them again and again.
_GC_THRESHOLDS = (200_000, 50, 100)
_RELIEF = 4096
"""So many elements of the input, and a task checks whether its memory is full."""

_CALL = re.compile(r"An error occurred while calling \S+?\.\s*:\s*")
"""How Py4J begins what Spark says."""


@dataclass(frozen=True)
class ScanTask:
    """What one task reads."""

    stage: str
    """The input."""
    splits: tuple[Split, ...]


@dataclass
class JobContext:
    """What every task of a job needs."""

    plan: BatchPlan
    layout: Layout
    config: dict[str, Any]
    candidates: dict[str, Any]
    """By archive: a sorted array of id hashes that occur more than once."""
    memory_bytes: int = LIMIT_BYTES
    """What the process of a task may use before it writes to disk."""
    checked: frozenset[str] = frozenset()
    """Reductions of which each element is pickled before it is reduced: see `Report.unsendable`."""


def execute(
    sc: SparkContext,
    setting: JobContext,
    readings: Sequence[ScanTask | PartialsTask],
    with_candidates: Sequence[ScanTask] = (),
) -> Report:
    """Run the job; files of its outputs are written, under temporary names.

    Args:
        sc: Spark.
        setting: what to do.
        readings: the input.
        with_candidates: the part of it in which there are duplicate candidates.

    Raises:
        HeronError: a source, a sink or Spark failed.
        UserCodeError: user code failed where no element can be set aside for it.
    """
    shared = sc.broadcast(pack(setting))
    try:
        rdd = _spread(sc, readings).mapPartitionsWithIndex(_Stage(_read_task, shared, 0))
        if with_candidates:
            rdd = rdd.union(_unique(sc, with_candidates, shared))
        for level in range(1, setting.plan.depth + 1):
            count = setting.layout.totals[level]
            rdd = rdd.partitionBy(count, int).mapPartitionsWithIndex(_Stage(_reduce_task, shared, level))
        report = Report()
        for _, (_, _, data) in collected(rdd):
            report.add(pickle.loads(data))
        return report
    finally:
        shared.destroy()


def pack(setting: Any) -> bytes:
    """A setting with the path that its modules are imported from."""
    return bytes(cloudpickle.dumps((import_path(), cloudpickle.dumps(setting))))


def unpack(data: bytes) -> Any:
    """In a task: what was packed, a new copy each time."""
    path, setting = pickle.loads(data)
    sys.path += [entry for entry in path if entry not in sys.path]
    return pickle.loads(setting)


def _spread(sc: SparkContext, readings: Sequence[ScanTask | PartialsTask]) -> Any:
    """One partition per reading."""
    return sc.parallelize([pack(reading) for reading in readings], max(1, len(readings)))


def collected(rdd: Any) -> list[Any]:
    """`rdd.collect()`, with errors of tasks as one line.

    Raises:
        HeronError: a task failed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return list(rdd.collect())
    except (Py4JError, PySparkException) as e:
        raise translated(str(e)) from e


def translated(text: str) -> HeronError:
    """The error of a task, from the traceback that Spark has put into its message."""
    marker = "Traceback (most recent call last):"
    if marker not in text:
        if "Python worker exited unexpectedly" in text:
            return HeronError(
                "the Spark job failed: one of its Python workers was killed, perhaps for lack of memory; "
                "nothing was replaced: run it again"
            )
        return HeronError(f"the Spark job failed: {' '.join(_CALL.sub('', text).split())[:300]}")
    frames = text[text.rindex(marker) :].split("\n\n")[0].split("\n\tat ")[0]
    line = next((line for line in reversed(frames.splitlines()) if line and not line[0].isspace()), "")
    kind, _, message = line.partition(": ")
    if kind.startswith("heronpy.errors."):
        return HeronError(message)
    if re.search(r"\[errno (28|30|122)\]", message, re.IGNORECASE):  # ENOSPC, EROFS, EDQUOT: not the program's fault
        return HeronError(f"the Spark job cannot write: {' '.join(message.split())[:300]}; nothing was replaced")
    return UserCodeError(f"the Spark job failed: {line}", frames)


class _Stage:
    """What Spark calls for each partition."""

    def __init__(self, run: Callable[..., Iterator[tuple[int, Block]]], shared: Any, level: int) -> None:
        self._run, self._shared, self._level = run, shared, level

    def __call__(self, index: int, rows: Iterable[Any]) -> Iterator[tuple[int, Block]]:
        gc.set_threshold(*_GC_THRESHOLDS)
        work = _Work(unpack(self._shared.value), index, self._level)
        try:
            with sendable_errors():
                yield from self._run(work, rows)
                for port in work.ports.values():
                    port.flush()
                work.outbox.report(work.task.finished(), index)
                yield from work.outbox.drain()
        finally:
            work.task.close()


class _Work:
    """A running task: its bookkeeping, its outbox and its ports."""

    def __init__(self, setting: JobContext, index: int, level: int) -> None:
        self.setting, self.index, self.level = setting, index, level
        layout = setting.layout
        directory, version, length_ms = layout.directory, layout.version, layout.batch_length_ms
        self.task = Task(
            directory, version, index, length_ms, layout.is_wanted, setting.config, layout.running, layout.read
        )
        self.outbox = Outbox(layout, level)
        self.ports: dict[tuple[str, int], Port] = {}
        self.memory = Memory(setting.memory_bytes)
        self.scratch = local_directory(index)
        self.ordered = False
        """Whether each attempt at the task has its elements in the same order."""

    def port(self, name: str, side: int) -> Port:
        """The port of an exchange; a union before it has several ways into it, a join two ports."""
        node = self.setting.plan.nodes[name]
        at = (name, side if isinstance(node, JoinNode) else 0)
        if at not in self.ports:
            port = self._new_port(node, side)
            self.ports[at] = SendablePort(port, name, self.task) if name in self.setting.checked else port
        return self.ports[at]

    def _new_port(self, node: Any, side: int) -> Port:
        task, layout, outbox = self.task, self.setting.layout, self.outbox
        back_ms = self.setting.plan.back_ms[node.stage]
        if isinstance(node, StoreNode):
            return StorePort(node, task, layout, outbox)
        if isinstance(node, SinkNode):
            return SinkPort(node, task, layout, outbox, ordered=self.ordered)
        if isinstance(node, JoinNode):
            return JoinPort(node, side, task, layout, outbox, self._begins(node.stage) if is_sessions(node) else None)
        if reduces_sessions(node):
            return SessionPort(node, task, layout, outbox, self._begins(node.stage))
        if isinstance(node, ReduceByKeyNode):
            return KeyPort(node, task, layout, outbox, self._begins(node.stage), self._taken(node.stage))
        if isinstance(node, ReduceByKeyAndWindowNode):
            return KeyedWindowPort(node, task, layout, outbox, back_ms)
        assert isinstance(node, ReduceByWindowNode), node
        return WindowPort(node, task, layout, outbox, back_ms)

    def reducer(self, name: str) -> Any:
        """Where the elements of an exchange meet."""
        node, task, layout = self.setting.plan.nodes[name], self.task, self.setting.layout
        back_ms = self.setting.plan.back_ms[name]
        scratch = self.scratch
        if isinstance(node, StoreNode):
            return StoreReducer(node, task, layout, self.memory, scratch)
        if isinstance(node, SinkNode):
            return SinkReducer(node, task, layout, self.memory, scratch)

        def new() -> Reducer:
            if isinstance(node, JoinNode):
                return JoinReducer(node, task, layout, back_ms, scratch, self._opens(name))
            if isinstance(node, ReduceByKeyNode) and name in self.setting.plan.outputs:
                return StateReducer(node, task, layout)
            if isinstance(node, ReduceByKeyNode):
                kept = self.setting.plan.partials.get(name)
                if kept is None:
                    return KeyReducer(node, task, layout, back_ms)
                plan = self.setting.plan
                return KeyReducer(
                    node, task, layout, back_ms, self.port(kept, 0), plan.stored(kept), is_reduced=plan.is_nested
                )
            assert isinstance(node, (ReduceByKeyAndWindowNode, ReduceByWindowNode)), node
            if reduces_sessions(node):
                return SessionReducer(node, task, layout, back_ms, self._opens(name))
            if isinstance(node, ReduceByKeyAndWindowNode):
                return KeyedWindowReducer(node, task)
            return WindowReducer(node, task)

        return Overflow(new, self.memory, scratch)

    def _opens(self, stage: str) -> Port | None:
        """Where is kept what is open at the end of each batch."""
        kept = self.setting.plan.opens.get(stage)
        return None if kept is None else self.port(kept, 0)

    def _begins(self, stage: str) -> int | None:
        first = self.setting.layout.first
        return None if first is None else self.setting.plan.begins(stage, first)

    def _taken(self, stage: str) -> frozenset[int] | None:
        """The batches whose elements a reduction takes; None: those of all from the first on."""
        plan, layout = self.setting.plan, self.setting.layout
        if not plan.is_carried or not plan.is_first(stage):
            return None
        assert layout.wanted is not None
        return layout.wanted - layout.carried

    def relieved(self) -> Iterator[tuple[int, Block]]:
        """What there is to send; everything that ports hold, if memory is full."""
        if self.memory.is_full():
            for port in self.ports.values():
                port.flush()
                yield from self.outbox.drain()
            hash_of.cache_clear()
            self.memory.emptied()
        yield from self.outbox.drain()

    def region(self, name: str) -> Push:
        """What follows an input or an exchange."""
        return region(self.setting.plan, name, self.task, self.port)


def _read_task(work: _Work, rows: Iterable[bytes]) -> Iterator[tuple[int, Block]]:
    work.ordered = True
    for packed in rows:
        reading: ScanTask | PartialsTask = unpack(packed)
        if isinstance(reading, PartialsTask):
            for batch, kept in reading.rows():
                work.outbox.keyed(reading.stage, batch, kept, work.task.failing(reading.stage, BEFORE_MS))
                yield from work.outbox.drain()
            continue
        push = _head(work, reading.stage)
        candidates = work.setting.candidates.get(reading.stage)
        archived = any(node.stage == reading.stage for node in work.setting.plan.archives())
        for split in reading.splits:
            for chunk in split.read(work.task.dead_letter(reading.stage, archived=archived)):
                values, times = _without(chunk, candidates)
                work.task.report.rows[reading.stage] += len(chunk.values)
                work.task.report.held_back += len(chunk.values) - len(values)
                for i in range(0, len(values), _RELIEF):
                    push(values[i : i + _RELIEF], times if isinstance(times, int) else times[i : i + _RELIEF])
                    yield from work.relieved()


def _without(chunk: Chunk, candidates: Any) -> tuple[list[Any], Times]:
    """A chunk's elements whose ids are there only once."""
    if candidates is None or chunk.id_hashes is None:
        return chunk.values, chunk.times_ms
    chosen = np.flatnonzero(~np.isin(chunk.id_hashes, candidates)).tolist()
    if len(chosen) == len(chunk.values):
        return chunk.values, chunk.times_ms
    return [chunk.values[i] for i in chosen], [int(chunk.times_ms[i]) for i in chosen]


def _head(work: _Work, name: str) -> Callable[[list[Any], Times], None]:
    """An input's region, with its elements counted; times no more exact than they are read."""
    layout = work.setting.layout
    length = layout.batch_length_ms
    exact = name in work.setting.plan.exact
    push = work.region(name)

    def head(values: list[Any], times: Times) -> None:
        if not values:
            return
        work.task.report.read += len(values)
        at = np.asarray(times, dtype=np.int64)
        batches = np.atleast_1d(at // length)
        low, high = int(batches.min()), int(batches.max())
        if low == high:
            if layout.is_wanted(low):
                work.task.report.elements[low] += len(values)
            push(values, at.tolist() if exact else low * length)
            return
        for batch, number in zip(*np.unique(batches, return_counts=True), strict=True):
            if layout.is_wanted(int(batch)):
                work.task.report.elements[int(batch)] += int(number)
        push(values, at.tolist() if exact else (batches * length).tolist())

    return head


def _reduce_task(work: _Work, rows: Iterable[tuple[int, Block]]) -> Iterator[tuple[int, Block]]:
    reducers = {name: work.reducer(name) for name in work.setting.layout.exchanges_at(work.level, work.index)}
    for _, block in rows:
        reducer = reducers.get(block[0])
        if reducer is not None:
            reducer.take(block[2])
        else:
            work.outbox.block(block)
            yield from work.outbox.drain()
    for name in list(reducers):
        reducer = reducers.pop(name)
        if hasattr(reducer, "results"):
            for _ in emit(work.region(name), reducer.results()):
                yield from work.relieved()
        else:
            reducer.finish()


# Elements that may be there twice

_PLACE_BITS = 40
"""Of the place of an element in its task; above it is the task's number."""
_DAMAGED = ""
"""Instead of a stage: the files that could not be read."""


def _unique(sc: SparkContext, with_candidates: Sequence[ScanTask], shared: Any) -> Any:
    """Blocks of the elements whose ids are duplicate candidates, each id once."""
    count = min(len(with_candidates), 64)
    return (
        _spread(sc, with_candidates)
        .mapPartitionsWithIndex(_Candidates(shared, count))
        .partitionBy(count, int)
        .mapPartitionsWithIndex(_Stage(_unique_task, shared, 0))
    )


class _Candidates:
    """Reads the elements whose ids are duplicate candidates: (partition, block of rows of a `UniqueReducer`)."""

    def __init__(self, shared: Any, count: int) -> None:
        self._shared, self._count = shared, count

    def __call__(self, index: int, rows: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        setting: JobContext = unpack(self._shared.value)
        places = itertools.count(index << _PLACE_BITS)
        for packed in rows:
            reading: ScanTask = unpack(packed)
            damaged: set[str] = set()

            def note(where: str, row: Any, reason: str, files: set[str] = damaged) -> None:
                files.add(file_of(where))  # the other reader sets the rows aside

            with sendable_errors():
                for split in reading.splits:
                    for chunk in split.read(note):
                        yield from self._rows(reading.stage, chunk, setting.candidates[reading.stage], places)
            for block in Packer().pack(_DAMAGED, sorted(damaged)):
                yield 0, block

    def _rows(self, stage: str, chunk: Chunk, candidates: Any, places: Iterator[int]) -> Iterator[tuple[int, bytes]]:
        if chunk.id_hashes is None or chunk.ids is None:
            return
        buckets: dict[int, list[tuple[str, int, int, Any]]] = {}
        for i in np.flatnonzero(np.isin(chunk.id_hashes, candidates)).tolist():
            row = (str(chunk.ids[i]), int(chunk.times_ms[i]), next(places), chunk.values[i])
            buckets.setdefault(int(chunk.id_hashes[i]) % self._count, []).append(row)
        packer = Packer()
        for p, bucket in buckets.items():
            yield from ((p, block) for block in packer.pack(stage, bucket))


def _unique_task(work: _Work, rows: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Block]]:
    setting = work.setting
    pushes = {stage: _head(work, stage) for stage in setting.candidates}
    with Overflow(lambda: UniqueReducer(work.task, setting.layout), work.memory, work.scratch) as unique:
        for _, block in rows:
            stage, found = unpacked(block)
            if stage == _DAMAGED:
                work.task.report.malformed_again |= set(found)
            else:
                work.task.report.compared += len(found)
                unique.add(stage, found)
        for stage, results in itertools.groupby(unique.results(), operator.itemgetter(0)):
            for some in sliced(results, _RELIEF):
                pushes[stage]([value for _, _, value in some], [time for _, time, _ in some])
                yield from work.relieved()
