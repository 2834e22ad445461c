"""Stores and sinks in a batch job: where results become files.

A batch has `layout.parts_of(batch)` files per output, whichever task writes them: many small batches in one job have
one file each, and a big one has many.
"""

from __future__ import annotations

import functools
import heapq
import inspect
import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from heronpy.files import sync
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.blocks import unpacked
from heronpy.pipeline.exchange import Layout, Outbox, by_batch, divided, output_directory
from heronpy.pipeline.memory import Memory
from heronpy.pipeline.parts import Row, encoded_key, once, part_name, sorted_rows, unused, write_part
from heronpy.pipeline.reductions import TABLE_KEYS_MAX
from heronpy.pipeline.spill import Spill
from heronpy.pipeline.task import Part, Task
from heronpy.streamlet.graph import SinkNode, StoreNode
from heronpy.streamlet.monoid import Monoid, Sum
from heronpy.streamlet.operators import Times, as_tuple

_SKETCHES_MAX = 20_000
"""As TABLE_KEYS_MAX, for accumulators that have an encoding of their own, and so may be large."""
_BLOCK_ELEMENTS = 4096
_MISSING = object()
_At = tuple[int, ...]
"""A part: of views batch and number, of tiers the number."""


def is_plain(monoid: Monoid) -> bool:
    """Whether accumulators are plain values, which are pickled faster than they are encoded one by one."""
    return type(monoid).encode is Monoid.encode


class StorePort:
    """{batch: {key: accumulator}}"""

    def __init__(self, node: StoreNode, task: Task, layout: Layout, outbox: Outbox) -> None:
        self._node, self._task, self._layout, self._outbox = node, task, layout, outbox
        self._tables: dict[int, dict[Any, Any]] = {}
        self._size = 0
        self._size_max = TABLE_KEYS_MAX if is_plain(node.monoid) else _SKETCHES_MAX
        self._add = _add_numbers if type(node.monoid) is Sum else functools.partial(_add, node.monoid)

    def add(self, values: list[Any], times: Times) -> None:
        length = self._layout.batch_length_ms
        for batch, pairs in by_batch(values, times, length):
            if not self._layout.is_wanted(batch, self._node.stage):
                continue
            table = self._tables.setdefault(batch, {})
            before = len(table)
            self._fold(pairs, table, batch * length)
            self._size += len(table) - before
        if self._size > self._size_max:
            self.flush()

    def _fold(self, pairs: list[Any], table: dict[Any, Any], time_ms: int) -> None:
        rest = iter(pairs)
        while error := self._add(rest, table):
            pair, what = error
            if isinstance(what, ArithmeticError) and self._add is _add_numbers:  # too much for one of numpy's integers
                key, value = pair
                try:
                    table[key] = self._node.monoid.merge(table.get(key, 0), value)
                    continue
                except Exception as other:
                    what = other
            if isinstance(what, TypeError) and isinstance(pair, (tuple, list)) and isinstance(pair[0], list):
                self._fold([(as_tuple(pair[0]), pair[1])], table, time_ms)
            else:
                self._task.failed(self._node.stage, pair, time_ms, what)

    def flush(self) -> None:
        name, monoid = self._node.stage, self._node.monoid
        plain = is_plain(monoid)
        for batch, table in self._tables.items():
            parts, count = self._layout.parts_of(batch), self._layout.counts[name]
            failed = self._task.failing(name, batch * self._layout.batch_length_ms)
            # Alone in its part a key needs no hash: the writer of the part refuses those that cannot be stored.
            for part, rows in divided(table.items(), parts, failed) if parts > 1 else [(0, list(table.items()))]:
                sent = rows if plain else [(key, monoid.encode(acc)) for key, acc in rows]
                self._outbox.rows(name, (batch * parts + part) % count, (batch, part), sent, failed)
        self._tables, self._size = {}, 0


def _add(monoid: Monoid, pairs: Iterator[Any], table: dict[Any, Any]) -> tuple[Any, Exception] | None:
    """Add the values of pairs to a table; up to the first that cannot be added."""
    get, lift, add = table.get, monoid.lift, monoid.add
    pair: Any = None
    try:
        for pair in pairs:
            key, value = pair
            acc = get(key, _MISSING)
            table[key] = lift(value) if acc is _MISSING else add(acc, value)
    except Exception as error:  # no pair, a key that cannot be hashed, or a value that the monoid does not take
        return pair, error
    return None


def _add_numbers(pairs: Iterator[Any], table: dict[Any, Any]) -> tuple[Any, Exception] | None:
    """`_add` for sums, without two calls per element; numbers that wrap are an error."""
    get = table.get
    pair: Any = None
    try:
        with np.errstate(over="raise"):
            for pair in pairs:
                key, value = pair
                table[key] = get(key, 0) + value
    except Exception as error:  # as above
        return pair, error
    return None


class PartTables:
    """Accumulators of parts of a view by key, merged. When memory is full, they become sorted runs on disk."""

    def __init__(
        self,
        monoid: Monoid,
        memory: Memory,
        scratch: str | None,
        failed: Callable[[_At], Callable[[Any, Any, Exception], None]],
    ) -> None:
        """Nothing is in them.

        Args:
            monoid: of the view.
            memory: of the process.
            scratch: where runs are.
            failed: gives, for a part, what is called for each (key, accumulator) that cannot be merged or stored.
        """
        self._monoid, self._memory, self._failed = monoid, memory, failed
        self._tables: dict[_At, dict[Any, Any]] = {}
        self._plain = is_plain(monoid)
        self._spill: Spill[tuple[_At, int]] = Spill(scratch)
        self._runs: Counter[_At] = Counter()

    def take(self, at: _At, rows: list[tuple[Any, Any]]) -> None:
        """Merge rows (key, accumulator), each key once, into a part.

        Raises:
            OSError: the disk is full.
        """
        merge_rows(self._tables.setdefault(at, {}), rows, self._monoid, self._failed(at))
        if self._memory.is_full():
            self._write_runs()

    def parts(self) -> Iterator[tuple[_At, Iterable[Row]]]:
        """Each part with its rows, sorted. Nothing else is called afterwards.

        Raises:
            OSError: the disk is full, or fails.
        """
        if self._runs:
            self._write_runs()
        for at in sorted(self._tables.keys() | self._runs.keys()):
            failed = self._failed(at)
            rows: Iterable[Row] = sorted_rows(self._tables.pop(at, {}).items(), self._monoid, failed)
            if at in self._runs:
                runs = [self._read((at, number)) for number in range(self._runs[at])]
                rows = once(heapq.merge(rows, *runs, key=encoded_key), self._monoid, failed)
            yield at, rows
        self._spill.close()

    def _write_runs(self) -> None:
        monoid = self._monoid
        for at in list(self._tables):
            rows: Iterable[Row] = sorted_rows(self._tables.pop(at).items(), monoid, self._failed(at))
            if not self._plain:
                rows = ((encoded, key, monoid.encode(acc)) for encoded, key, acc in rows)
            self._spill.write((at, self._runs[at]), None, rows)
            self._runs[at] += 1
        self._memory.emptied()

    def _read(self, run: tuple[_At, int]) -> Iterator[Row]:
        rows = self._spill.rows(run)
        decode = self._monoid.decode
        return rows if self._plain else ((encoded, key, decode(acc)) for encoded, key, acc in rows)


class StoreReducer:
    """Writes the parts of a view."""

    def __init__(self, node: StoreNode, task: Task, layout: Layout, memory: Memory, scratch: str | None) -> None:
        self._node, self._task, self._layout = node, task, layout
        self._plain = is_plain(node.monoid)
        self._tables = PartTables(node.monoid, memory, scratch, self._failed)

    def take(self, data: bytes) -> None:
        at, rows = unpacked(data)
        if not self._plain:
            decode = self._node.monoid.decode
            rows = [(key, decode(acc)) for key, acc in rows]
        self._tables.take(at, rows)

    def finish(self) -> None:
        """Write what has come."""
        for at, rows in self._tables.parts():
            batch, part = at
            directory = output_directory(self._layout.directory, self._node, batch, self._layout.version)
            path = unused(directory, part)
            count = write_part(path, rows, self._node.monoid, self._failed(at))
            final = part_name(part) if isinstance(path, Path) else path.name
            self._task.report.parts.append(Part(self._node.stage, batch, part, count, path, final))

    def _failed(self, at: _At) -> Callable[[Any, Any, Exception], None]:
        time_ms = at[0] * self._layout.batch_length_ms
        return lambda key, acc, error: self._task.failed(self._node.stage, (key, acc), time_ms, error)


def merge_rows(
    table: dict[Any, Any],
    rows: list[tuple[Any, Any]],
    monoid: Monoid,
    failed: Callable[[Any, Any, Exception], None] | None = None,
) -> None:
    """Merge (key, accumulator) into a table. What the monoid cannot merge goes to `failed`, or is raised without it."""
    if not table:
        table.update(rows)  # a block has each key once
        return
    get, merge = table.get, monoid.merge
    for key, acc in rows:
        before = get(key, _MISSING)
        try:
            table[key] = acc if before is _MISSING else merge(before, acc)
        except Exception as error:
            if failed is None:
                raise
            failed(key, acc, error)


class SinkPort:
    """Elements by batch.

    Which file of its batch an element goes to follows from its task, and from its place in that where each attempt at
    the task reads in the same order: when Spark repeats a task whose output is lost, some files are done already.
    """

    def __init__(self, node: SinkNode, task: Task, layout: Layout, outbox: Outbox, *, ordered: bool) -> None:
        """Nothing waits.

        Args:
            node: the sink.
            task: where it runs.
            layout: the job's.
            outbox: the task's.
            ordered: each attempt at the task has its elements in the same order.
        """
        self._node, self._task, self._layout, self._outbox = node, task, layout, outbox
        self._ordered = ordered
        self._waiting: dict[int, list[Any]] = {}
        self._turn = task.index
        self._count = 0
        self._sent: Counter[int] = Counter()

    def add(self, values: list[Any], times: Times) -> None:
        for batch, elements in by_batch(values, times, self._layout.batch_length_ms):
            if not self._layout.is_wanted(batch, self._node.stage):
                continue
            waiting = self._waiting.setdefault(batch, [])
            waiting += elements
            self._count += len(elements)
            if len(waiting) >= _BLOCK_ELEMENTS:
                self._send(batch)
        if self._count >= TABLE_KEYS_MAX:
            self.flush()

    def flush(self) -> None:
        for batch in list(self._waiting):
            self._send(batch)

    def _send(self, batch: int) -> None:
        elements = self._waiting.pop(batch)
        self._count -= len(elements)
        parts, count = self._layout.parts_of(batch), self._layout.counts[self._node.stage]
        failed = self._task.failing(self._node.stage, batch * self._layout.batch_length_ms)
        at = 0
        while at < len(elements):
            turn, before = divmod(self._sent[batch], _BLOCK_ELEMENTS)
            some = elements[at : at + _BLOCK_ELEMENTS - before] if self._ordered else elements
            part = (self._turn + turn if self._ordered else self._turn) % parts
            self._outbox.rows(self._node.stage, (batch * parts + part) % count, (batch, part), some, failed)
            self._sent[batch] += len(some)
            at += len(some)


class SinkReducer:
    """Hands elements to the sink's batch face. Until then they are bytes, in memory or, when that is full, on disk."""

    def __init__(self, node: SinkNode, task: Task, layout: Layout, memory: Memory, scratch: str | None) -> None:
        self._node, self._task, self._layout = node, task, layout
        self._memory, self._scratch = memory, scratch
        self._blocks: dict[tuple[int, int], list[bytes]] = {}
        self._spill: Spill[tuple[int, int]] = Spill(scratch)

    def take(self, data: bytes) -> None:
        self._blocks.setdefault(unpacked(data)[0], []).append(data)
        if self._memory.is_full():
            self._write_blocks()

    def finish(self) -> None:
        """Write what has come: the sink pulls elements, one part after the other."""
        for batch, part in sorted(self._blocks.keys() | self._spill.runs):
            directory = output_directory(self._layout.directory, self._node, batch, self._layout.version)
            counter = _Counter(itertools.chain(self._spill.blocks((batch, part)), self._blocks.pop((batch, part), ())))
            time_ms = batch * self._layout.batch_length_ms
            path = unused(directory, part, "")
            if isinstance(path, Path):
                written: Location = self._write(path, counter, time_ms)
                final = f"part-{part:05d}" + written.name.removeprefix(path.name)
            else:
                written = self._upload(path, counter, time_ms)
                final = written.name
            self._task.report.parts.append(Part(self._node.stage, batch, part, counter.count, written, final))
        self._spill.close()

    def _upload(self, path: Location, counter: _Counter, time_ms: int) -> Location:
        """Have the sink write a part on this host, and store it with the suffix that the sink has chosen."""
        with tempfile.TemporaryDirectory(prefix="heron-sink-", dir=self._scratch) as scratch:
            local = self._write(Path(scratch) / path.name, counter, time_ms)
            final = path.with_name(path.name + local.name.removeprefix(path.name))
            with local.open("rb") as file, files_of(final).writing(final) as to:
                assert not isinstance(to, Path)
                shutil.copyfileobj(file, to)
        return final

    def _write(self, path: Path, counter: _Counter, time_ms: int) -> Path:
        """Have the sink write a part; what it refuses is set aside, as in a topology, if it says what that is."""
        write: Callable[..., Path | None] = self._node.sink.write_part

        def refused(element: Any, error: Exception) -> None:
            counter.count -= 1
            self._task.failed(self._node.stage, element, time_ms, error)

        takes_refused = "refused" in inspect.signature(write).parameters
        written = write(path, iter(counter), refused) if takes_refused else write(path, iter(counter))
        assert written is not None, f"{self._node.stage}: supports_batch, but write_part() wrote nothing"
        sync(written)
        return written

    def _write_blocks(self) -> None:
        for at in list(self._blocks):
            for block in self._blocks.pop(at):
                self._spill.write_block(at, block)
        self._memory.emptied()


class _Counter:
    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = blocks
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        for data in self._blocks:
            elements = unpacked(data)[1]
            self.count += len(elements)
            yield from elements
