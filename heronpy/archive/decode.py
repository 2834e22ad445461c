"""Arrow columns back to elements: what comes out equals what went in."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from heronpy.archive._arrow import pa, pc
from heronpy.archive.element_types import Type
from heronpy.archive.mixed import OTHER, from_json


def decode(columns: dict[str, Any], type_: Type) -> list[Any]:
    """The elements in the columns `value`, `absent`, `ints` and `other` (Arrow arrays).

    Raises:
        ValueError, TypeError, LookupError: the columns are not what `encode` makes.
    """
    values = values_of(columns["value"], type_)
    for name, change in (("absent", _delete), ("ints", _to_int)):
        if name in columns and columns[name].null_count < len(values):
            _apply(values, columns[name], change)
    if OTHER in columns and columns[OTHER].null_count < len(values):
        notes = columns[OTHER]
        for index in np.flatnonzero(notes.is_valid().to_numpy(zero_copy_only=False)).tolist():
            for place, value in from_json(notes[index].as_py()).items():
                _at(values, (index, *_steps(place)), partial(_put, value))
    return values


def values_of(array: Any, type_: Type) -> list[Any]:
    """An Arrow array as Python values."""
    if isinstance(type_, str):
        return _scalars(array, type_)
    values = _lists(array, type_["list"]) if "list" in type_ else _dicts(array, type_["dict"])
    return _with_none(values, array)


def _scalars(array: Any, type_: str) -> list[Any]:
    if type_ == "null":
        return [None] * len(array)
    if type_ in ("str", "bytes"):
        # Each distinct text of a dictionary is made once, and rows share it.
        return list(array.to_numpy(zero_copy_only=False))
    whole = array if array.null_count == 0 else pc.fill_null(array, False if type_ == "bool" else 0)
    return _with_none(whole.to_numpy(zero_copy_only=False).tolist(), array)


def _with_none(values: list[Any], array: Any) -> list[Any]:
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values


def _lists(array: Any, inner: Type) -> list[Any]:
    offsets = array.offsets.to_numpy()
    first = int(offsets[0])
    items = values_of(array.values.slice(first, int(offsets[-1]) - first), inner)
    bounds = (offsets - first).tolist()
    return [items[begin:end] for begin, end in pairwise(bounds)]


def _dicts(array: Any, fields: dict[str, Type]) -> list[Any]:
    if not fields:
        return [{} for _ in range(len(array))]
    children = iter(array.flatten())
    columns = [
        [None] * len(array) if inner == "null" else values_of(next(children), inner) for inner in fields.values()
    ]
    return _maker(tuple(fields))(*columns)


@lru_cache(256)
def _maker(names: tuple[str, ...]) -> Callable[..., list[dict[str, Any]]]:
    """A function from columns to dicts.

    Written out with its keys it takes a third of the time of `dict(zip(names, row))`; names are quoted by `repr`.
    """
    if len(names) == 1:
        name = names[0]
        return lambda column: [{name: value} for value in column]
    places = ", ".join(f"v{index}" for index in range(len(names)))
    pairs = ", ".join(f"{name!r}: v{index}" for index, name in enumerate(names))
    made: Callable[..., list[dict[str, Any]]] = eval(f"lambda *columns: [{{{pairs}}} for {places} in zip(*columns)]")
    return made


def _apply(values: list[Any], notes: Any, change: Callable[[Any, Any], None]) -> None:
    for index in np.flatnonzero(notes.is_valid().to_numpy(zero_copy_only=False)).tolist():
        for path in _paths(notes[index].as_py()):
            _at(values, (index, *path), change)


def _at(values: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> None:
    *parents, last = path
    for step in parents:
        values = values[int(step) if isinstance(values, list) else step]
    change(values, int(last) if isinstance(values, list) else last)


@lru_cache(4096)
def _paths(note: str) -> tuple[tuple[str, ...], ...]:
    return tuple(map(_steps, json.loads(note)))


def _steps(pointer: str) -> tuple[str, ...]:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _delete(parent: dict[str, Any], field: str) -> None:
    del parent[field]


def _put(value: Any, parent: Any, place: Any) -> None:
    parent[place] = value


def _to_int(parent: Any, place: Any) -> None:
    parent[place] = int(parent[place])


def hashes_of(array: Any) -> Any:
    """The column `id_hash` as numpy int64."""
    return array.to_numpy(zero_copy_only=False)


def one_array(column: Any) -> Any:
    """A table's column without its chunks."""
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
