"""Elements to Arrow columns, in bulk: each field of some thousand rows at a time.

A file's `value` column has exactly the fields that its rows have. Rows differ in two ways that Parquet cannot say: a
field that is missing is not one that is None, and 1 is not 1.0. Rows that have such a place name it in the columns
`absent` and `ints` (JSON lists of JSON pointers, RFC 6901); files without such rows do not have these columns. Nor do
they have the column `other` (see `mixed`) if all values are of their fields' types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from heronpy.archive._arrow import pa
from heronpy.archive.element_types import MIXED, SCALARS, SchemaMismatch, Type, check_text, named
from heronpy.archive.mixed import OTHER, fitted, pointer
from heronpy.errors import HeronError, is_shortage

_NONE = type(None)
_SCALAR_TYPES = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bytes": pa.binary(),
}
_KINDS: dict[str, set[type]] = {name: {kind, _NONE} for kind, name in SCALARS.items()} | {"null": {_NONE}}
_EMPTY = "_"
"""Parquet has no struct without fields: this one is in place of none."""


def arrow_type(type_: Type) -> Any:
    """The Arrow type of values."""
    if isinstance(type_, str):
        return _SCALAR_TYPES[type_]
    if "list" in type_:
        return pa.list_(arrow_type(type_["list"]))
    return pa.struct([(field, arrow_type(type_["dict"][field])) for field in known(type_)] or [(_EMPTY, pa.null())])


def known(type_: Type) -> list[str]:
    """The fields of a dict's type that have a column.

    Those that were always None have none: Spark would take it for an integer, and not merge it with what comes later.
    """
    return [field for field, inner in type_["dict"].items() if inner != "null"]


def encode(values: Sequence[Any], type_: Type) -> dict[str, Any]:
    """The columns `value` and, if rows need them, `absent` and `ints`.

    Raises:
        SchemaMismatch: a value is not of this type.
    """
    return _encoded(values, type_)


def encode_mixed(values: Sequence[Any], type_: Type) -> dict[str, Any]:
    """The same where some values are not of the type: what is not is in the column `other`.

    Raises:
        SchemaMismatch: a value is none that the codec can hold at all, or has a field that the type has not.
    """
    try:
        return _encoded(values, type_)
    except SchemaMismatch:
        kept, notes = fitted(values, type_)
    columns = _encoded(kept, type_)
    if any(notes):
        columns[OTHER] = pa.array([note or None for note in notes], pa.string())
    return columns


def _encoded(values: Sequence[Any], type_: Type) -> dict[str, Any]:
    encoder = _Encoder()
    columns = {"value": encoder.array(values, type_, ())}
    if encoder.notes_needed:
        for name, notes in zip(("absent", "ints"), _notes(values, type_), strict=True):
            if any(notes):
                columns[name] = pa.array([note or None for note in notes], pa.string())
    return columns


class _Encoder:
    def __init__(self) -> None:
        self.notes_needed = False

    def array(self, values: Sequence[Any], type_: Type, path: tuple[str, ...]) -> Any:
        kinds = set(map(type, values))
        if isinstance(type_, str):
            return self._scalars(values, type_, kinds, path)
        kind = list if "list" in type_ else dict
        if not kinds <= {kind, _NONE}:
            raise SchemaMismatch(f"{named(path)} is not always a {kind.__name__}")
        mask = None
        if _NONE in kinds:
            mask = pa.array([value is None for value in values], pa.bool_())
            stand_in = [] if kind is list else dict.fromkeys(type_["dict"])
            values = [stand_in if value is None else value for value in values]
        if kind is list:
            return self._lists(values, type_["list"], mask, path)
        return self._dicts(values, type_["dict"], mask, path)

    def _scalars(self, values: Sequence[Any], type_: str, kinds: set[type], path: tuple[str, ...]) -> Any:
        if not kinds <= _KINDS[type_]:
            if type_ != "float" or not kinds <= MIXED | {_NONE}:
                raise SchemaMismatch(f"{named(path)} is not always {type_}")
            self.notes_needed = True
        try:
            array = pa.array(values, _SCALAR_TYPES[type_])
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            if is_shortage(error):
                raise
            raise SchemaMismatch(_unfit(values, type_, path)) from error
        if isinstance(array, pa.ChunkedArray):
            raise HeronError(f"archive: {named(path)} has more than 2 GB in one commit: commit more often")
        return array

    def _lists(self, values: Sequence[list[Any]], inner: Type, mask: Any, path: tuple[str, ...]) -> Any:
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
        items = self.array(list(chain.from_iterable(values)), inner, (*path, "[]"))
        return pa.ListArray.from_arrays(pa.array(offsets), items, mask=mask)

    def _dicts(self, values: Sequence[Any], fields: dict[str, Type], mask: Any, path: tuple[str, ...]) -> Any:
        regular = set(map(len, values)) <= {len(fields)}
        try:
            columns = [list(map(itemgetter(field), values)) for field in fields] if regular else []
        except KeyError:
            regular = False
        if not regular:
            if set().union(*values) - fields.keys():
                raise SchemaMismatch(f"{named(path)} has a new field")
            self.notes_needed = True
            columns = [[value.get(field) for value in values] for field in fields]
        arrays = {
            field: self.array(column, inner, (*path, field))
            for column, (field, inner) in zip(columns, fields.items(), strict=True)
        }
        kept = {field: array for field, array in arrays.items() if fields[field] != "null"}
        kept = kept or {_EMPTY: pa.nulls(len(values))}
        return pa.StructArray.from_arrays(
            list(kept.values()), fields=[pa.field(name, array.type) for name, array in kept.items()], mask=mask
        )


def _unfit(values: Sequence[Any], type_: str, path: tuple[str, ...]) -> str:
    for value in values:
        if type_ == "str" and value is not None:
            try:
                check_text(value, path)
            except SchemaMismatch as mismatch:
                return str(mismatch)
        if type(value) is int and not -(2**63) <= value < 2**63:
            return f"{named(path)} is an int beyond 64 bits"
    return f"{named(path)} has an int that no float can hold" if type_ == "float" else f"{named(path)} is not {type_}"


# Notes ---------------------------------------------------------------------------------------------------------------


def _notes(values: Sequence[Any], type_: Type) -> tuple[list[str], list[str]]:
    """What rows say in `absent` and in `ints`; empty text where there is nothing to say."""
    if isinstance(type_, dict) and "dict" in type_ and all(_plain(inner) for inner in type_["dict"].values()):
        return _absent_by_shape(values, list(type_["dict"])), []  # by far the most common: flat dicts of several kinds
    both = [_walked(value, type_) for value in values]
    return [absent for absent, _ in both], [ints for _, ints in both]


def _plain(type_: Type) -> bool:
    return isinstance(type_, str) and type_ != "float"


def _absent_by_shape(values: Sequence[dict[str, Any] | None], fields: list[str]) -> list[str]:
    shapes: dict[tuple[str, ...], str] = {}
    notes = []
    for value in values:
        shape = tuple(value or ())
        note = shapes.get(shape) if value is not None else ""
        if note is None:
            absent = [pointer("", field) for field in fields if field not in shape]
            note = shapes[shape] = json.dumps(absent) if absent else ""
        notes.append(note)
    return notes


def _walked(value: Any, type_: Type) -> tuple[str, str]:
    absent: list[str] = []
    ints: list[str] = []
    _walk(value, type_, "", absent.append, ints.append)
    return json.dumps(absent) if absent else "", json.dumps(ints) if ints else ""


def _walk(value: Any, type_: Type, here: str, absent: Callable[[str], None], an_int: Callable[[str], None]) -> None:
    if type_ == "float":
        if type(value) is int:
            an_int(here)
    elif isinstance(type_, str) or value is None:
        pass
    elif "list" in type_:
        inner = type_["list"]
        if not _plain(inner):
            for index, item in enumerate(value):
                _walk(item, inner, f"{here}/{index}", absent, an_int)
    else:
        for field, inner in type_["dict"].items():
            if field not in value:
                absent(pointer(here, field))
            elif not _plain(inner):
                _walk(value[field], inner, pointer(here, field), absent, an_int)
