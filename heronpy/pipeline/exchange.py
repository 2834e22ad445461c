"""How elements travel between tasks: in blocks (`blocks`), each for one partition of one exchange.

All exchanges of a level share one Spark shuffle: those of exchange e are `offset[e]` to `offset[e] + count[e] - 1`.
If there is little input, all of them are the one partition 0: a task costs more than its work then.
A block that is for a later level (a join of the input with a window's results) and a task's report ride along in
whatever partition, and are handed on. Spark sees (partition, (exchange, partition of it, bytes)): a few thousand rows
cost it one element.
"""

from __future__ import annotations

import bisect
import functools
import operator
import pickle
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from heronpy.filesystem import Location
from heronpy.hashing import stable_hash, stable_hashes
from heronpy.pipeline.blocks import Failed, Packer
from heronpy.pipeline.plan import BatchPlan
from heronpy.pipeline.task import Report
from heronpy.streamlet.graph import Node, SinkNode, StoreNode
from heronpy.streamlet.operators import Times

REPORT = ""
"""The exchange of reports."""
PART_BYTES = 32 * 1024 * 1024
"""Input per reducing task, and per file of a batch's view."""
_SMALL_BYTES = 8 * 1024 * 1024
"""Below this one task reduces faster than several start."""
_LEAST_BYTES = 4 * 1024 * 1024
"""Less is not worth a reducing task of its own, however many cores there are."""
_HASHED = frozenset({str, bytes, int, float, bool, type(None)})
"""Types of which each value has a stable hash."""
_KEY = operator.itemgetter(0)
hash_of = functools.lru_cache(100_000)(stable_hash)
"""The stable hash of a key that is not of these: many are sent again and again."""

Block = tuple[str, int, bytes]


@dataclass
class Layout:
    """Where everything of one Spark job goes, and what of it is wanted."""

    batch_length_ms: int
    wanted: frozenset[int] | None
    """Batch ids that are computed; None: all up to `last`."""
    first: int | None
    """The earliest of them; None: not known."""
    last: int
    """The latest of them that there can be."""
    counts: dict[str, int]
    """Partitions of each exchange."""
    levels: dict[str, int]
    parts: dict[int, int]
    """Files of each batch's outputs."""
    default_parts: int
    """Files of a batch that is not in `parts`."""
    directory: Location
    version: str
    carried: frozenset[int] = frozenset()
    """Those of which only what is in `running` is computed."""
    running: frozenset[str] = frozenset()
    """See `BatchPlan.running`."""
    read: Container[int] | None = None
    """Batches whose elements are read; of others there may be what reductions have kept. None: all."""
    together: bool = False
    """Whether one task does all exchanges of a level, as it suffices for little input; each has one partition then."""
    offsets: dict[str, int] = field(default_factory=dict)
    totals: list[int] = field(default_factory=list)
    """Partitions of each level; level 0 has what the input has."""

    def __post_init__(self) -> None:
        self._ordered = sorted(self.wanted or ())
        self.totals = [0] * (1 + max(self.levels.values()))
        for name, level in self.levels.items():
            self.offsets[name] = 0 if self.together else self.totals[level]
            self.totals[level] = self.offsets[name] + self.counts[name]

    def is_wanted(self, batch: int, stage: str = "") -> bool:
        """Whether what a stage (without one: an input) has of a batch id is computed."""
        inside = batch <= self.last if self.wanted is None else batch in self.wanted
        return inside and (batch not in self.carried or stage in self.running)

    def is_read(self, batch: int, back: int | None) -> bool:
        """Whether something of a batch that is computed follows from so many batches before it, and this is one."""
        if self.wanted is None or back is None:
            return True
        at = bisect.bisect_left(self._ordered, batch)
        return at < len(self._ordered) and self._ordered[at] - back <= batch

    def parts_of(self, batch: int) -> int:
        """How many files a batch has, per output."""
        return self.parts.get(batch, self.default_parts)

    def exchanges_at(self, level: int, partition: int) -> list[str]:
        """Whose a partition of a level is."""
        return [
            name
            for name, of in self.levels.items()
            if of == level and self.offsets[name] <= partition < self.offsets[name] + self.counts[name]
        ]


def layout_of(
    plan: BatchPlan,
    *,
    batch_length_ms: int,
    wanted: frozenset[int] | None,
    last: int,
    batch_bytes: dict[int, int],
    total_bytes: int,
    parallelism: int,
    directory: Location,
    version: str,
    carried: Mapping[int, int] = MappingProxyType({}),
    read: Container[int] | None = None,
) -> Layout:
    """Decide how many partitions everything has: so many that one fits in a worker's memory, and no more."""
    enough = -(-total_bytes // PART_BYTES)
    count = max(enough, min(parallelism, total_bytes // _LEAST_BYTES) if total_bytes > _SMALL_BYTES else 1)
    parts = {batch: max(1, -(-size // PART_BYTES)) for batch, size in batch_bytes.items()}
    default_parts = 1 if wanted is not None else count
    parts |= {batch: max(1, number) for batch, number in carried.items()}
    if wanted is not None and len(wanted) == 1 and not carried:  # one batch alone may use all cores
        parts = {next(iter(wanted)): count}
    return Layout(
        batch_length_ms=batch_length_ms,
        wanted=wanted,
        first=min(wanted) if wanted else None,
        last=last,
        counts=dict.fromkeys(plan.levels, count),
        levels=plan.levels,
        parts=parts,
        default_parts=default_parts,
        directory=directory,
        version=version,
        carried=frozenset(carried),
        running=frozenset(plan.running),
        read=read,
        together=count == 1,
    )


def divided(rows: Iterable[Any], count: int, failed: Failed) -> Iterator[tuple[int, list[Any]]]:
    """Rows by partition, which is the stable hash of a row's first value modulo `count`.

    Args:
        rows: each begins with a key that a dict takes.
        count: of partitions.
        failed: called for rows whose key has no stable hash, however many partitions there are.
    """
    rows = list(rows)
    keys = list(map(_KEY, rows))
    if {*map(type, keys)} <= _HASHED:
        if count == 1:
            yield 0, rows
        else:
            yield from by_number(rows, (stable_hashes(keys) % np.uint64(count)).astype(np.int64))
        return
    kept, numbers = [], []
    for row in rows:
        try:
            numbers.append(hash_of(row[0]) % count)
            kept.append(row)
        except Exception as error:  # also of its __stable_key__
            failed(row, error)
    yield from by_number(kept, np.array(numbers, dtype=np.int64))


class Outbox:
    """What a task sends."""

    def __init__(self, layout: Layout, level: int) -> None:
        """An empty one.

        Args:
            layout: the job's.
            level: the task's.
        """
        self._layout = layout
        self._next = level + 1
        self._blocks: list[tuple[int, Block]] = []
        self._packers: defaultdict[str, Packer] = defaultdict(Packer)

    def rows(self, exchange: str, partition: int, head: Any, rows: list[Any], failed: Failed) -> None:
        """Send rows, with something that is the same for all of them; `failed` is called for those that cannot be."""
        for data in self._packers[exchange].pack(head, rows, failed):
            self.block((exchange, partition, data))

    def keyed(self, exchange: str, head: Any, rows: Iterable[Any], failed: Failed) -> None:
        """Send rows to the partitions of their keys, as `divided`."""
        for partition, some in divided(rows, self._layout.counts[exchange], failed):
            self.rows(exchange, partition, head, some, failed)

    def block(self, block: Block) -> None:
        """Send, or hand on, a block."""
        exchange, partition, _ = block
        if self._next >= len(self._layout.totals):
            target = 0
        elif exchange != REPORT and self._layout.levels[exchange] == self._next:
            target = self._layout.offsets[exchange] + partition
        else:
            target = partition % self._layout.totals[self._next]
        self._blocks.append((target, block))

    def report(self, report: Report, index: int) -> None:
        """Send the task's report."""
        self.block((REPORT, index, pickle.dumps(report)))

    def drain(self) -> list[tuple[int, Block]]:
        """Take what there is."""
        blocks, self._blocks = self._blocks, []
        return blocks


def by_number(values: list[Any], numbers: np.ndarray[Any, Any]) -> Iterator[tuple[int, list[Any]]]:
    """Values by the number at their place."""
    if len(numbers) == 0:
        return
    first = int(numbers[0])
    if (numbers == first).all():
        yield first, values
        return
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    ends = [*np.flatnonzero(np.diff(ordered)) + 1, len(ordered)]
    begin = 0
    for end in ends:
        yield int(ordered[begin]), [values[i] for i in order[begin:end].tolist()]
        begin = end


def by_batch(values: list[Any], times: Times, batch_length_ms: int) -> Iterator[tuple[int, list[Any]]]:
    """Values by batch id."""
    if isinstance(times, int):
        yield times // batch_length_ms, values
    else:
        yield from by_number(values, np.asarray(times, dtype=np.int64) // batch_length_ms)


def output_name(node: Node) -> str:
    """What an output is called in the manifest."""
    return node.store_name if isinstance(node, StoreNode) else node.stage


def output_directory(directory: Location, node: Node, batch: int, version: str) -> Location:
    """Where the files of an output's batch are."""
    kind = "sinks" if isinstance(node, SinkNode) else "views"
    return directory / kind / output_name(node) / f"batch={batch}" / version
