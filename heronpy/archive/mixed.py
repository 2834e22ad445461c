"""Values that are not of their field's type: kept in a column of their own, so that none is lost.

A field has the type that it was first seen with, so that all files have the same columns, and SQL reads them. A value
of another type (a text in a field of numbers, an int beyond 64 bits, text without a UTF-8 form) is null there. It is in
the column `other`: JSON {JSON pointer: value}, with bytes as {"b": base64} and dicts as {"d": {…}}.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from heronpy.archive.element_types import MAX_DEPTH, SCALARS, SchemaMismatch, Type, check_text, merge, named, of_kind

OTHER = "other"
"""The column."""
_Path = tuple[str, ...]
_NONE = type(None)


def widen(known: Type, value: Any, path: _Path = ()) -> Type:
    """`known` with what a value adds to it. Where they contradict each other, what is known stays.

    Raises:
        SchemaMismatch: the value is none that the codec can hold at all.
    """
    kind = type(value)
    if kind is _NONE:
        return known
    if kind in SCALARS:
        # What cannot be in a column says nothing about it.
        return merge(known, SCALARS[kind]) if _agrees(known, SCALARS[kind]) and _fits_alone(value, path) else known
    if kind not in (list, dict):
        raise SchemaMismatch(of_kind(kind, path))
    if len(path) >= MAX_DEPTH:
        raise SchemaMismatch(f"{named(path[:3])} is nested deeper than {MAX_DEPTH} levels")
    here = "list" if kind is list else "dict"
    agrees = known == "null" or (isinstance(known, dict) and here in known)
    if kind is list:
        inner = known["list"] if agrees and known != "null" else "null"
        for item in value:
            inner = widen(inner, item, (*path, "[]"))
        return {"list": inner} if agrees else known
    fields = dict(known["dict"]) if agrees and known != "null" else {}
    for field, item in value.items():
        if type(field) is not str:
            raise SchemaMismatch(f"{named(path)} has the key {field!r:.100}: keys must be str")
        check_text(field, path)
        fields[field] = widen(fields.get(field, "null"), item, (*path, field))
    return {"dict": dict(sorted(fields.items()))} if agrees else known


def fit(value: Any, type_: Type, here: str, others: dict[str, Any]) -> Any:
    """The value without what is not of the type; that goes to `others`, by JSON pointer."""
    kind = type(value)
    if kind is _NONE:
        return None
    if isinstance(type_, dict):
        if kind is list and "list" in type_:
            return [fit(item, type_["list"], f"{here}/{index}", others) for index, item in enumerate(value)]
        if kind is dict and "dict" in type_:
            fields = type_["dict"]
            return {name: fit(item, fields[name], pointer(here, name), others) for name, item in value.items()}
    elif kind in SCALARS and _is(value, type_):
        return value
    others[here] = value
    return None


def to_json(others: dict[str, Any]) -> str:
    """What a row has in the column `other`; empty if nothing."""
    return json.dumps({place: _tagged(value) for place, value in others.items()}) if others else ""


def from_json(text: str) -> dict[str, Any]:
    """The same again.

    Raises:
        ValueError, TypeError, LookupError: it is not what `to_json` makes.
    """
    return {place: _untagged(value) for place, value in json.loads(text).items()}


def fitted(values: Sequence[Any], element: Type) -> tuple[list[Any], list[str]]:
    """Values of the type only, and what each row has in the column `other`."""
    kept, notes = [], []
    for value in values:
        others: dict[str, Any] = {}
        kept.append(fit(value, element, "", others))
        notes.append(to_json(others))
    return kept, notes


def pointer(here: str, field: str) -> str:
    """The JSON pointer of a field (RFC 6901)."""
    return f"{here}/{field.replace('~', '~0').replace('/', '~1')}"


def _agrees(known: Type, name: str) -> bool:
    return known in ("null", name) or (isinstance(known, str) and {known, name} == {"int", "float"})


def _fits_alone(value: Any, path: _Path) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is str:
        try:
            check_text(value, path)
        except SchemaMismatch:
            return False
    return True


def _is(value: Any, type_: Type) -> bool:
    name = SCALARS[type(value)]
    if type_ == "float" and name == "int":
        return bool(-(2**53) <= value <= 2**53)
    same: bool = type_ == name
    return same and _fits_alone(value, ())


def _tagged(value: Any) -> Any:
    if type(value) is bytes:
        return {"b": base64.b64encode(value).decode()}
    if type(value) is dict:
        return {"d": {field: _tagged(item) for field, item in value.items()}}
    return [_tagged(item) for item in value] if type(value) is list else value


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "b" in value:
        return base64.b64decode(value["b"], validate=True)
    return {field: _untagged(item) for field, item in value["d"].items()}
