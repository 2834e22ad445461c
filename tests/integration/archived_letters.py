"""Small archives, and what is read of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.archive import Archive, ArchiveWriter
from heronpy.archive.id_hash import hash_of

HOUR = 3_600_000


class Letters:
    """Dead letters in a list."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Any, str]] = []

    def __call__(self, where: str, row: Any, reason: str) -> None:
        self.rows.append((where, row, reason))


@pytest.fixture
def letters() -> Letters:
    return Letters()


def writer(directory: Path, letters: Any, codec: str = "columns", **options: Any) -> ArchiveWriter:
    settings = {"task": "archive-0", "batch_length_ms": HOUR, **options}
    return ArchiveWriter(directory, codec=codec, dead_letter=letters, **settings)


def write(directory: Path, letters: Any, values: list[Any], *, first: int = 0, **options: Any) -> int:
    """One commit of values with ids id-0, id-1, … and a minute between their times."""
    with_ = writer(directory, letters, **options)
    for index, value in enumerate(values, first):
        with_.add(f"id-{index}", index * 60_000, value)
    return with_.commit()


def read(directory: Path, letters: Any, target_bytes: int = 1 << 20) -> dict[str, tuple[int, Any]]:
    """Everything by id; no id may be there twice."""
    archive = Archive(directory)
    rows: dict[str, tuple[int, Any]] = {}
    for files in archive.batches().values():
        for split in archive.splits(files, target_bytes):
            for chunk in pickle.loads(pickle.dumps(split)).read(letters):
                ids = list(map(str, chunk.ids))  # type: ignore[arg-type]
                assert [hash_of(id_) for id_ in ids] == chunk.id_hashes.tolist()
                for id_, time_ms, value in zip(ids, chunk.times_ms, chunk.values, strict=True):
                    assert id_ not in rows
                    rows[id_] = (time_ms, value)
    return rows


def values(directory: Path, letters: Any) -> list[Any]:
    rows = read(directory, letters)
    return [rows[id_][1] for id_ in sorted(rows, key=lambda id_: int(id_[3:]))]


def paths(directory: Path) -> Iterator[Path]:
    return directory.glob("batch=*/*.parquet")


EVENTS = [
    {"user": f"u{index % 7}", "n": index, "price": index / 2, "tags": ["x"] * (index % 3)} for index in range(200)
]


def in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value
