"""The data source that makes tables of state, in this process: what Spark calls in its workers."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from heronpy.checkpoints import ComponentEntry, Kind, Manifest, open_storage
from heronpy.errors import CheckpointError, UsageError
from heronpy.pipeline.state_writing import StateSpec, write_part
from heronpy.state import Place

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
t = pytest.importorskip("pyspark.sql.types")
source = pytest.importorskip("heronpy.pipeline.state_source")

SPEC = StateSpec("values", Kind.KEYED, "pickle", 1, timed=False)


def stored(directory: Path, entries: dict[Any, Any]) -> dict[str, str]:
    """Options that name a checkpoint with these entries."""
    with open_storage(str(directory)) as storage:
        rows = [(0, key, value, 0) for key, value in entries.items()]
        ref, _ = write_part(storage, Place("batch-1", "bolt", groups=8), [SPEC], rows, epoch=0)
        manifest = Manifest(
            topology_id="batch-1",
            checkpoint_id=1,
            epoch=0,
            groups=8,
            components={"bolt": ComponentEntry(1, 0)},
            objects=(ref,),
        )
        assert storage.create(manifest.name, manifest.encode())
    return {"path": str(directory), "component": "bolt", "state": "values"}


def table(**columns: Any) -> Any:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def rows(options: dict[str, str], schema: Any = None) -> set[tuple[Any, ...]]:
    of = source.StateSource(options)
    reader = of.reader(of.schema() if schema is None else schema)
    return {row for part in reader.partitions() for row in reader.read(part)}


@pytest.mark.parametrize(
    ("entries", "schema"),
    [
        ({"a": 1, "b": None}, "key:string,value:bigint"),
        ({1: 1.5, 2: 2}, "key:bigint,value:double"),
        ({("a", 1): True, ("b", 2): False}, "key:struct<_1:string,_2:bigint>,value:boolean"),
        ({"a": [1, 2], "b": []}, "key:string,value:array<bigint>"),
        ({b"a": {"x": 1.5}, b"b": {}}, "key:binary,value:map<string,double>"),
        ({datetime.date(2026, 1, 2): None}, "key:date,value:string"),
        ({"a": datetime.datetime(2026, 1, 2)}, "key:string,value:timestamp_ntz"),
        ({"a": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)}, "key:string,value:timestamp"),
        ({}, "key:string,value:string"),
    ],
)
def test_the_types_of_a_table_are_those_of_its_entries(tmp_path: Path, entries: dict[Any, Any], schema: str) -> None:
    options = stored(tmp_path, entries)
    found = source.StateSource(options).schema()
    assert found.simpleString() == f"struct<{schema},task:int,written_ms:bigint>"
    read = list(source.StateSource(options).reader(found).partitions())
    made = [row for part in read for row in source.StateSource(options).reader(found).read(part)]
    assert {key: value for key, value, _, _ in made} == entries
    assert {row[2:] for row in made} <= {(None, None)}


def test_a_schema_chooses_and_orders_columns(tmp_path: Path) -> None:
    options = stored(tmp_path, {"a": 1, "b": 2})
    assert rows(options, table(value=t.IntegerType(), key=t.StringType())) == {(1, "a"), (2, "b")}
    assert rows(options | {"parts": "4"}, table(key=t.StringType())) == {("a",), ("b",)}
    with pytest.raises(UsageError, match="no column 'word'; it has: key, value, task, written_ms"):
        rows(options, table(word=t.StringType()))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, t.StringType()),
        (1, t.BooleanType()),
        (True, t.LongType()),
        (1.5, t.LongType()),
        ("1", t.DoubleType()),
        (b"a", t.StringType()),
        ((1, 2), t.StructType([t.StructField("a", t.LongType())])),
        ([1, "2"], t.ArrayType(t.LongType())),
        ({"a": "1"}, t.MapType(t.StringType(), t.LongType())),
        ({1, 2}, t.ArrayType(t.LongType())),
        (datetime.datetime(2026, 1, 2, 3), t.DateType()),
        (datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC), t.TimestampNTZType()),
    ],
)
def test_a_value_of_another_type_than_the_table_is_refused_and_never_converted(
    tmp_path: Path, value: Any, kind: Any
) -> None:
    options = stored(tmp_path, {"a": value})
    with pytest.raises(UsageError, match=r"component 'bolt', state 'values': the value .* of key 'a' is of type"):
        rows(options, table(key=t.StringType(), value=kind))


def test_values_without_a_type_in_spark_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for number, entries in enumerate(({"a": {1, 2}}, {"a": 1, "b": "2"}, {("a",): 1, ("a", "b"): 2})):
        with pytest.raises(UsageError, match=r"are of type .*: give the reader a schema, or read them by state_pairs"):
            rows(stored(tmp_path / str(number), entries))


def test_options_that_are_missing_or_unknown_are_refused(tmp_path: Path) -> None:
    options = stored(tmp_path, {"a": 1})
    with pytest.raises(UsageError, match="needs the option component, state"):
        rows({"path": str(tmp_path)})
    with pytest.raises(UsageError, match="has no option key"):
        rows(options | {"key": "a"})


class Forgotten:
    """A class that is not there when it is read."""


def test_a_value_that_cannot_be_decoded_is_an_error_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = stored(tmp_path, {"a": Forgotten()})
    monkeypatch.delattr(f"{__name__}.Forgotten")
    with pytest.raises(CheckpointError, match=r"state 'values': the value of key 'a' cannot be decoded"):
        rows(options, table(key=t.StringType(), value=t.StringType()))
