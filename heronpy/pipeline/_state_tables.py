"""A checkpoint that Spark writes, for a topology to begin with: `heron submit --from URL`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from heronpy.checkpoints import (
    MANIFESTS,
    OBJECTS,
    ComponentEntry,
    Kind,
    Manifest,
    ObjectRef,
    check_intact,
    decode_ref,
    encode_ref,
    open_storage,
)
from heronpy.errors import AlreadyExistsError, UsageError
from heronpy.hashing import KEY_GROUPS
from heronpy.pipeline.execute import collected
from heronpy.pipeline.state_writing import CHECKPOINT, StateRow, StateSpec, by_task, state_row, write_part
from heronpy.redaction import redacted
from heronpy.state import Place, Schema

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame

COLUMNS = ("key", "value")
WRITTEN = "written_ms"
_AT_ONCE = 1024
_KINDS = (Kind.KEYED, Kind.SPLIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTable:
    """What one state of a component begins with."""

    component: str
    state: str
    rows: DataFrame | RDD[tuple[Any, Any]]
    """Columns `key` and `value`, and `written_ms` for states with a `ttl_s`; or pairs of any Python objects.
    Structs and arrays of keys, and structs of values, become tuples; binary becomes bytes."""
    kind: str = "keyed"
    """`keyed`, or `split` for positions of sources; one without (null) is finished."""
    codec: str = "pickle"
    version: int = 1


def write_checkpoint(
    url: str, tables: Sequence[StateTable], *, groups: int = KEY_GROUPS, parts: int | None = None
) -> list[int]:
    """Write a checkpoint that a topology can begin with, with any number of tasks. It is there whole or not at all.

    Each part of a component is in the memory of one of Spark's workers, as a task would have it.

    Args:
        url: A storage without checkpoints, for `heronpy.checkpoints.open_storage`, which the workers reach, too.
        tables: All states that it has.
        groups: `topology.state.key.groups` of the topology.
        parts: Of each component; None: as many as Spark runs tasks at once.

    Returns:
        How many entries each table had.

    Raises:
        AlreadyExistsError: there are checkpoints in that storage.
        UsageError: two tables are of one state; parts or key groups cannot be; another kind than keyed and split.
        HeronError: the job failed: a key is there twice, a key or value cannot be stored.
        StateError, UnavailableError: the storage cannot be read or written.
    """
    specs = _specs(tables)
    if not tables:
        raise UsageError("no state is given to write")
    frames = [table.rows for table in tables]
    sc: Any = frames[0].sparkSession.sparkContext if hasattr(frames[0], "sparkSession") else frames[0].context
    parts = min(groups, max(1, int(sc.defaultParallelism))) if parts is None else parts
    if groups < 1 or groups & (groups - 1) or not 1 <= parts <= groups:
        raise UsageError(f"{groups} key groups in {parts} parts: they must be a power of two, and not less than parts")
    topology_id = f"spark-{secrets.token_hex(8)}"
    with open_storage(url) as storage:
        _refuse_taken(storage.names(MANIFESTS), url)
        refs: list[ObjectRef] = []
        counts = dict.fromkeys(((table.component, table.state) for table in tables), 0)
        for component, states in specs.items():
            rows = [_rows(table, states) for table in tables if table.component == component]
            placed = sc.union([one.mapPartitions(partial(_placed, parts, groups)) for one in rows])
            place = partial(Place, topology_id, component, tasks=parts, groups=groups)
            write = partial(_write, url, place, states)
            for ref, written in collected(placed.partitionBy(parts, int).mapPartitionsWithIndex(write)):
                found = decode_ref(ref)
                assert isinstance(found, ObjectRef)
                refs.append(found)
                for state, count in zip(states, written, strict=True):
                    counts[component, state.name] += count
        manifest = Manifest(
            topology_id=topology_id,
            checkpoint_id=CHECKPOINT,
            epoch=0,
            groups=groups,
            components={component: ComponentEntry(parts, 0) for component in specs},
            objects=tuple(refs),
            created_ms=time.time_ns() // 1_000_000,
        )
        check_intact(storage, manifest, blocks=False)
        if not storage.create(manifest.name, manifest.encode()):
            _refuse_taken([manifest.name], url)
        # Of attempts that failed, and of jobs that did.
        storage.delete(set(storage.names(OBJECTS)) - set(manifest.names))
    return [counts[table.component, table.state] for table in tables]


def _specs(tables: Sequence[StateTable]) -> dict[str, list[StateSpec]]:
    """The states of each component, checked."""
    specs: dict[str, list[StateSpec]] = {}
    for table in tables:
        if table.kind not in _KINDS:
            raise UsageError(f"state {table.state!r} is {table.kind}: only keyed and split state can be written")
        Schema(table.state, Kind(table.kind), table.codec, table.version)
        columns = getattr(table.rows, "columns", None)
        if columns is not None and (sorted({*COLUMNS, *columns} - {WRITTEN}) != sorted(COLUMNS) or len(columns) > 3):
            raise UsageError(
                f"state {table.state!r}: its table has the columns {', '.join(columns)}; key and value are "
                f"needed, and {WRITTEN} is allowed"
            )
        own = specs.setdefault(table.component, [])
        if any(spec.name == table.state for spec in own):
            raise UsageError(f"component {table.component!r}: two tables are of state {table.state!r}")
        timed = columns is not None and WRITTEN in columns
        if timed and table.kind != Kind.KEYED:
            raise UsageError(f"state {table.state!r}: {WRITTEN} is of keyed state only")
        own.append(StateSpec(table.state, Kind(table.kind), table.codec, table.version, timed))
    return specs


def _refuse_taken(manifests: Sequence[str], url: str) -> None:
    if manifests:
        raise AlreadyExistsError(f"{redacted(url)} has checkpoints: choose an empty place")


def _rows(table: StateTable, states: Sequence[StateSpec]) -> Any:
    """The rows of a table as an RDD of `StateRow`."""
    position, spec = next((at, spec) for at, spec in enumerate(states) if spec.name == table.state)
    rows: Any = table.rows
    if hasattr(rows, "columns"):
        columns = (*COLUMNS, WRITTEN) if spec.timed else COLUMNS
        rows = rows.select(*columns).rdd
    return rows.map(partial(state_row, position))


def _placed(parts: int, groups: int, rows: Iterable[StateRow]) -> Iterator[tuple[int, StateRow]]:
    rest = iter(rows)
    while some := list(islice(rest, _AT_ONCE)):
        yield from by_task(some, parts, groups)


def _write(
    url: str, place: Any, states: Sequence[StateSpec], index: int, rows: Iterable[tuple[int, StateRow]]
) -> Iterator[tuple[bytes, list[int]]]:
    # An attempt that Spark has given up may still write: no other has its epoch.
    with open_storage(url) as storage:
        ref, counts = write_part(storage, place(index=index), states, (row for _, row in rows), secrets.randbits(32))
    yield encode_ref(ref), counts
