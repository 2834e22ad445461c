"""State in checkpoints as a table of Spark: `spark.read.format("heron_state")`."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from heronpy.errors import UsageError
from heronpy.pipeline.state_parts import StatePart, state_parts
from heronpy.state import StoredEntry

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "heron_state"
_SAMPLE = 1000
"""So many entries say which types keys and values have, unless the reader is given a schema."""
_OPTIONS = frozenset(("path", "component", "state", "checkpoint", "parts"))
_FIXED: dict[str, t.DataType] = {"task": t.IntegerType(), "written_ms": t.LongType()}
_TYPES: dict[type, t.DataType] = {
    bool: t.BooleanType(),
    int: t.LongType(),
    float: t.DoubleType(),
    str: t.StringType(),
    bytes: t.BinaryType(),
    datetime.date: t.DateType(),
}
_ACCEPTED: dict[type[t.DataType], tuple[type, ...]] = {
    t.StringType: (str,),
    t.BooleanType: (bool,),
    t.ByteType: (int,),
    t.ShortType: (int,),
    t.IntegerType: (int,),
    t.LongType: (int,),
    t.FloatType: (int, float),
    t.DoubleType: (int, float),
    t.BinaryType: (bytes, bytearray),
    t.DecimalType: (decimal.Decimal,),
    t.DateType: (datetime.date,),
    t.TimestampType: (datetime.datetime,),
    t.TimestampNTZType: (datetime.datetime,),
    t.ArrayType: (list, tuple),
    t.StructType: (tuple, list),
    t.MapType: (dict,),
}
"""Which Python types a Spark type is given. Spark would make text or null of some others."""


def read_state(
    spark: SparkSession,
    url: str,
    component: str,
    state: str,
    *,
    schema: t.StructType | str | None = None,
    checkpoint: int | None = None,
    parts: int | None = None,
) -> DataFrame:
    """A state in a checkpoint as a table: `key`, `value`, `task` (null for what is kept by key), and `written_ms`.

    A position of a source is its value, and null if it is finished. Values of other than plain types are unpickled,
    which runs code that the checkpoint names: only for what your own topologies have stored.

    Args:
        spark: The session.
        url: A storage, as given to `heron checkpoint NAME --to`.
        component: Whose state.
        state: Its name.
        schema: Some of these columns, and their types; None: as the first entries are.
        checkpoint: Its id; None: the newest that is intact.
        parts: How many; None: by size.

    Raises:
        NotFoundError: there is no such checkpoint, component or state.
        UsageError: keys or values have no type in Spark that fits all: `state_pairs` is for any objects.
        HeronError: the checkpoint cannot be read.
        PySparkException: later, when the table is read: one of them is of another type than the schema says.
    """
    from heronpy.submit import storage_url

    place = storage_url(url)
    found = state_parts(place, component, state, checkpoint=checkpoint, parts=parts)
    spark.dataSource.register(StateSource)
    reader = spark.read.format(FORMAT).options(component=component, state=state, parts=len(found))
    # This very checkpoint, whenever the table is read.
    reader = reader.option("checkpoint", found[0].checkpoint)
    return reader.schema(_schema(found) if schema is None else schema).load(place)


def state_pairs(
    sc: SparkContext,
    url: str,
    component: str,
    state: str,
    *,
    checkpoint: int | None = None,
    parts: int | None = None,
) -> RDD[tuple[Any, Any]]:
    """The pairs (key, value) of a state in a checkpoint, whatever objects they are. Otherwise as `read_state`.

    Raises:
        HeronError: the checkpoint, its component or state is not there or cannot be read.
    """
    from heronpy.submit import storage_url

    found = state_parts(storage_url(url), component, state, checkpoint=checkpoint, parts=parts)
    return sc.parallelize(found, len(found)).flatMap(_pairs)


class StateSource(DataSource):
    """Options: `path` (a storage's URL), `component`, `state`; `checkpoint` and `parts` as in `read_state`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> t.StructType:
        return _schema(_parts(self.options))

    def reader(self, schema: t.StructType) -> DataSourceReader:
        return _Reader(schema, _parts(self.options))


@dataclass
class _Partition(InputPartition):
    part: StatePart


class _Reader(DataSourceReader):
    def __init__(self, schema: t.StructType, parts: Sequence[StatePart]) -> None:
        self._schema, self._parts = schema, parts
        for field in schema.fields:
            if field.name not in _COLUMNS:
                raise UsageError(f"a state has no column {field.name!r}; it has: {', '.join(_COLUMNS)}")

    def partitions(self) -> Sequence[InputPartition]:
        return [_Partition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, _Partition)
        part = partition.part
        columns = [(field.name, _COLUMNS[field.name], field.dataType) for field in self._schema.fields]
        for entry in part.entries():
            row = []
            for name, get, kind in columns:
                value = get(part, entry)
                if not _fits(value, kind):
                    raise UsageError(
                        f"component {part.component!r}, state {part.state!r}: the {name} {str(value)[:80]!r} of key "
                        f"{str(entry.key)[:80]!r} is of type {type(value).__name__}, and the table's is "
                        f"{kind.simpleString()}: give another schema, or read it by state_pairs()"
                    )
                row.append(value)
            yield tuple(row)


def _parts(options: Any) -> list[StatePart]:
    given = {name: str(value) for name, value in options.items()}
    if missing := {"path", "component", "state"} - given.keys():
        raise UsageError(f"format {FORMAT!r} needs the option {', '.join(sorted(missing))}")
    if unknown := given.keys() - _OPTIONS:
        raise UsageError(f"format {FORMAT!r} has no option {', '.join(sorted(unknown))}")
    checkpoint, parts = (int(given[name]) if name in given else None for name in ("checkpoint", "parts"))
    return state_parts(given["path"], given["component"], given["state"], checkpoint=checkpoint, parts=parts)


def _schema(parts: Sequence[StatePart]) -> t.StructType:
    """Types as those of the first entries."""
    some = list(islice((pair for part in parts for pair in _pairs(part)), _SAMPLE))
    fields = [
        t.StructField("key", _type_of("keys", [key for key, _ in some])),
        t.StructField("value", _type_of("values", [value for _, value in some])),
        *(t.StructField(name, kind) for name, kind in _FIXED.items()),
    ]
    return t.StructType(fields)


def _pairs(part: StatePart) -> Iterator[tuple[Any, Any]]:
    for entry in part.entries():
        yield entry.key, part.value(entry)


_COLUMNS: dict[str, Callable[[StatePart, StoredEntry], Any]] = {
    "key": lambda part, entry: entry.key,
    "value": lambda part, entry: part.value(entry),
    "task": lambda part, entry: entry.task,
    "written_ms": lambda part, entry: entry.written_ms or None,
}


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is one of a Spark type, its elements included."""
    if value is None:
        return True
    if type(value) is bool and not isinstance(kind, t.BooleanType):
        return False
    accepted: Any = _ACCEPTED.get(type(kind))
    if accepted is None or not isinstance(value, accepted):
        return False
    if isinstance(value, datetime.datetime):  # it is a date, too: without its time, or else without its zone
        return not isinstance(kind, t.DateType) and not (isinstance(kind, t.TimestampNTZType) and value.tzinfo)
    if isinstance(kind, t.ArrayType):
        return all(_fits(one, kind.elementType) for one in value)
    if isinstance(kind, t.MapType):
        return all(_fits(key, kind.keyType) and _fits(one, kind.valueType) for key, one in value.items())
    if isinstance(kind, t.StructType):
        return len(value) == len(kind.fields) and all(map(_fits, value, (field.dataType for field in kind.fields)))
    return True


def _type_of(what: str, values: Sequence[Any]) -> t.DataType:
    """The Spark type of some values that are alike.

    Raises:
        UsageError: they are not, or there is none for them.
    """
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return t.StringType()
    if kinds == {int, float}:
        return t.DoubleType()
    if len(kinds) == 1 and (kind := _TYPES.get(next(iter(kinds)))) is not None:
        return kind
    there = [value for value in values if value is not None]
    if kinds == {tuple} and len({len(value) for value in there}) == 1:
        columns = zip(*there, strict=True)
        return t.StructType([t.StructField(f"_{at}", _type_of(what, column)) for at, column in enumerate(columns, 1)])
    if kinds == {list}:
        return t.ArrayType(_type_of(what, [one for value in there for one in value]))
    if kinds == {dict}:
        keys, of = [key for value in there for key in value], [one for value in there for one in value.values()]
        return t.MapType(_type_of(what, keys), _type_of(what, of))
    if kinds == {datetime.datetime}:
        return t.TimestampType() if there[0].tzinfo is not None else t.TimestampNTZType()
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise UsageError(f"the {what} are of type {names}: give the reader a schema, or read them by state_pairs()")
