"""Parts of views: one that is damaged or in the place of another is not read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from heronpy.errors import StateError
from heronpy.pipeline.parts import part_name, unused, write_part
from heronpy.pipeline.views import read_rows
from heronpy.stores import encode_key
from heronpy.streamlet import Sum


def refuse(key: Any, acc: Any, error: Exception) -> None:
    raise AssertionError((key, acc)) from error


def part(directory: Path, batch: int, value: int) -> Path:
    folder = directory / "views" / "sums" / f"batch={batch}" / "1a-00000001"
    path = unused(folder, 0)
    rows = [(encode_key(f"k{i:05d}"), f"k{i:05d}", value + i) for i in range(2000)]
    assert write_part(path, rows, Sum(), refuse) == 2000
    return path.rename(folder / part_name(0))


def test_a_part_in_the_place_of_another_is_not_read(tmp_path: Path) -> None:
    one, other = part(tmp_path, 1, 1), part(tmp_path, 2, 100)
    assert len(list(read_rows(one))) == 2000
    shutil.copy(other, one)
    with pytest.raises(StateError, match=r"it is sums/batch=2/1a-00000001/part-00000.parquet, in the place of another"):
        list(read_rows(one))


def test_every_damaged_byte_of_a_part_is_found_or_of_no_importance(tmp_path: Path) -> None:
    path = part(tmp_path, 1, 1)
    whole, data = list(read_rows(path)), path.read_bytes()
    found = 0
    for at in range(4, len(data), len(data) // 200):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            assert list(read_rows(path)) == whole, f"byte {at} is damaged, and was read"
        except StateError:
            found += 1
    assert found > 50
