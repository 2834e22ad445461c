"""What elements are made of: the types that the codec "columns" keeps apart, and how they are merged.

A type is what `_schema.json` and the footers hold: "null", "bool", "int", "float", "str", "bytes", {"list": type} or
{"dict": {field: type}}, with fields sorted, so that files of one type have the same columns. "null" is what is known of
a field that was always None, or of an empty list's items. "float" is also the type of a field that has both floats and
ints: rows then say which values were ints.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

Type = Any  # JSON, see above

MAX_FIELDS = 2000
"""Dicts whose keys are data would make a schema without end: pickle those."""
MAX_DEPTH = 24
_NONE = type(None)
SCALARS: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes"}
MIXED = {int, float}


class SchemaMismatch(Exception):
    """A value that the codec or the schema has no place for; one line."""


def infer(values: Sequence[Any], path: tuple[str, ...] = ()) -> Type:
    """The type of values, all together.

    Raises:
        SchemaMismatch: they have none, or not one in common.
    """
    kinds = set(map(type, values))
    some_none = _NONE in kinds
    kinds.discard(_NONE)
    if not kinds:
        return "null"
    if kinds == MIXED:
        return "float"
    if len(kinds) > 1 or not kinds <= (SCALARS.keys() | {list, dict}):
        raise SchemaMismatch(_of_kinds(kinds, path))
    (kind,) = kinds
    if kind in SCALARS:
        return SCALARS[kind]
    if len(path) >= MAX_DEPTH:
        raise SchemaMismatch(f"{named(path[:3])} is nested deeper than {MAX_DEPTH} levels")
    if some_none:
        values = [value for value in values if value is not None]
    if kind is list:
        return {"list": infer(list(chain.from_iterable(values)), (*path, "[]"))}
    return {"dict": {field: _field(values, field, path) for field in _fields(values, path)}}


def _field(values: Sequence[Any], field: str, path: tuple[str, ...]) -> Type:
    return infer([value[field] for value in values if field in value], (*path, field))


def _fields(values: Sequence[dict[Any, Any]], path: tuple[str, ...]) -> list[str]:
    fields: set[Any] = set().union(*values)
    if set(map(type, fields)) - {str}:
        other = next(field for field in fields if type(field) is not str)
        raise SchemaMismatch(f"{named(path)} has the key {other!r:.100}: keys must be str")
    if len(fields) > MAX_FIELDS:
        raise SchemaMismatch(f"{named(path)} has more than {MAX_FIELDS} different keys")
    for field in fields:
        check_text(field, path)
    return sorted(fields)


def of_kind(kind: type, path: tuple[str, ...]) -> str:
    """Why a value of this class has no type."""
    return f"{named(path)} is a {kind.__name__}, which is none of str, int, float, bool, bytes, list, dict"


def _of_kinds(kinds: set[type], path: tuple[str, ...]) -> str:
    for kind in kinds:
        if kind not in SCALARS and kind not in (list, dict):
            return of_kind(kind, path)
    return f"{named(path)} is {' and '.join(sorted(kind.__name__ for kind in kinds))}: one type only"


def check_text(text: str, path: tuple[str, ...]) -> None:
    """Refuse text that has no UTF-8 form."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SchemaMismatch(f"{named(path)} has text with a lone surrogate, which has no UTF-8 form") from None


def named(path: tuple[str, ...]) -> str:
    """A place in an element, for people."""
    return f"field {'.'.join(path).replace('.[]', '[]')!r:.200}" if path else "the element"


def merge(old: Type, new: Type, path: tuple[str, ...] = ()) -> Type:
    """The type of values of both types: new fields are added, None is learned, int becomes float.

    Raises:
        SchemaMismatch: there is none.
    """
    if old == new or new == "null":
        return old
    if old == "null" or {str(old), str(new)} == {"int", "float"}:
        return new if old == "null" else "float"
    if isinstance(old, dict) and isinstance(new, dict):
        if "list" in old and "list" in new:
            return {"list": merge(old["list"], new["list"], (*path, "[]"))}
        if "dict" in old and "dict" in new:
            fields = dict(old["dict"])
            for field, type_ in new["dict"].items():
                fields[field] = merge(fields[field], type_, (*path, field)) if field in fields else type_
            return {"dict": dict(sorted(fields.items()))}
    raise SchemaMismatch(f"{named(path)} was {_kind(old)} before and is {_kind(new)} now")


def narrow(known: Type, seen: Type) -> Type:
    """`known` without the fields that `seen` has not: what a file must hold, in the types that all files have."""
    if not isinstance(seen, dict) or not isinstance(known, dict):
        return known
    if seen.keys() != known.keys():
        return known  # mixed, see `mixed`
    if "list" in seen:
        return {"list": narrow(known["list"], seen["list"])}
    return {"dict": {field: narrow(known["dict"][field], type_) for field, type_ in seen["dict"].items()}}


def count_fields(type_: Type) -> int:
    """How many Parquet columns a type takes, about."""
    if not isinstance(type_, dict):
        return 1
    if "list" in type_:
        return 1 + count_fields(type_["list"])
    return 1 + sum(map(count_fields, type_["dict"].values()))


def _kind(type_: Type) -> str:
    return type_ if isinstance(type_, str) else next(iter(type_))
