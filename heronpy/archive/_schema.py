"""`_schema.json`: what an archive's elements are, agreed upon by all of its writers.

New fields are added, and what was always None is learned; a field whose type changes is refused. Fields are never
removed. Files hold only the fields that their rows have, in the types of the schema when they were written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heronpy.archive.element_types import MAX_FIELDS, SchemaMismatch, Type, count_fields, merge
from heronpy.archive.files import locked, write_json
from heronpy.archive.footer import CODECS
from heronpy.errors import ConfigError, HeronError
from heronpy.filesystem import Location, files_of

NAME = "_schema.json"
_VERSIONS = "_schema"
"""In a store, which knows no locks, each version is a file of this folder, and who creates it first has made it."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What is known of an archive's elements."""

    codec: str
    """"columns" or "pickle"."""
    batch_length_ms: int
    """A batch id is the time divided by this."""
    version: int = 1
    """One more with each change."""
    element: Type = "null"
    """Type of the elements; see `heronpy.archive.element_types`."""


def read_schema(directory: Location) -> Schema | None:
    """The schema of an archive; None if nothing has been archived there.

    Raises:
        HeronError: the file cannot be read; one line.
    """
    files = files_of(directory)
    path = directory / NAME
    if not files.renames:
        versions = files.listed(directory / _VERSIONS)
        if not versions:
            return None
        path = versions[-1].path
    try:
        content: dict[str, Any] = json.loads(files.read(path))
        if content["codec"] not in CODECS:
            raise ValueError(f"unknown codec {content['codec']!r:.40}")
        return Schema(content["codec"], content["batch_length_ms"], content["version"], content["element"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise HeronError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def agree(directory: Location, codec: str, batch_length_ms: int) -> Schema:
    """The schema of an archive, created if it is new.

    Raises:
        ConfigError: it has another codec or batch length, or there is no such codec.
    """
    if codec not in CODECS:
        raise ConfigError(f"archive {directory}: unknown codec {codec!r}: use 'columns' or 'pickle'")
    schema = read_schema(directory) or _changed(directory, lambda there: there or Schema(codec, batch_length_ms))
    for name, asked, there in (
        ("codec", codec, schema.codec),
        ("batch length", f"{batch_length_ms} ms", f"{schema.batch_length_ms} ms"),
    ):
        if asked != there:
            raise ConfigError(
                f"archive {directory} has {name} {there}, not {asked}: keep it, or archive to another directory"
            )
    return schema


def evolve(directory: Location, seen: Type) -> Schema:
    """Add what was seen to the schema, and return it.

    Raises:
        SchemaMismatch: it contradicts the schema.
    """

    def evolved(schema: Schema | None) -> Schema:
        if schema is None:
            raise HeronError(f"archive {directory}: its schema was removed while the archive is written")
        element = merge(schema.element, seen)
        if element == schema.element:
            return schema
        if count_fields(element) > MAX_FIELDS:
            raise SchemaMismatch(f"the archive would have more than {MAX_FIELDS} fields")
        return replace(schema, version=schema.version + 1, element=element)

    return _changed(directory, evolved)


def _changed(directory: Location, change: Callable[[Schema | None], Schema]) -> Schema:
    """Replace the schema by what `change` makes of it, and of nothing else."""
    if isinstance(directory, Path):
        with locked(directory / "_schema.lock", f"archive {directory}"):
            before = read_schema(directory)
            after = change(before)
            if after != before:
                write_json(directory, directory / NAME, _content(after))
            return after
    while True:
        before = read_schema(directory)
        after = change(before)
        path = directory / _VERSIONS / f"{after.version:010d}.json"
        if after == before or files_of(directory).create(path, json.dumps(_content(after)).encode()):
            return after  # or else another has made this version: there is a newer one to change


def _content(schema: Schema) -> dict[str, Any]:
    return {field: getattr(schema, field) for field in ("codec", "batch_length_ms", "version", "element")}
