"""Files of an archive that say something else than their writer did, and lack of memory that looks like damage."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronpy.archive import Archive, ArchiveWriter
from heronpy.archive.footer import UnreadableError, as_unreadable


def archive(directory: Path) -> Archive:
    """Ten rows in each of two batches; every second one lacks a field."""

    def refuse(where: str, row: Any, reason: str) -> None:
        raise AssertionError((where, row, reason))

    writer = ArchiveWriter(directory, task="t-0", batch_length_ms=10_000, codec="columns", dead_letter=refuse)
    for n in range(20):
        writer.add(f"id-{n}", 1000 * n, {"n": n} if n % 2 else {"n": n, "time_ms": 5})
    writer.commit()
    writer.close()
    return Archive(directory)


def test_a_file_among_those_of_another_batch_is_damaged(tmp_path: Path) -> None:
    found = archive(tmp_path)
    first, second = (files[0] for files in found.batches().values())
    assert found.check([first, second])[1] == {}
    shutil.copy(first.path, second.path)
    again = Archive(tmp_path)
    good, bad = again.check([file for files in again.batches().values() for file in files])
    assert [file.batch for file in good] == [0]
    assert list(bad.values()) == ["the file cannot be read: it has rows of batch 0, and is among those of 1"]


def test_damaged_metadata_of_a_column_do_not_end_the_process(tmp_path: Path) -> None:
    (file,) = archive(tmp_path).batches()[0]
    data = file.path.read_bytes()
    program = (
        "import sys; from pathlib import Path; from heronpy.archive import Archive\n"
        "found = Archive(Path(sys.argv[1])); path = Path(sys.argv[2]); data = path.read_bytes()\n"
        "for at in range(len(data) - 8 - int.from_bytes(data[-8:-4], 'little'), len(data)):\n"
        "    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])\n"
        "    Archive(found.directory).check(found.batches()[0])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(file.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(data) == file.size_bytes


def test_a_column_that_no_archive_has_is_damage(tmp_path: Path) -> None:
    found = archive(tmp_path)
    (file,) = found.batches()[0]
    table = pq.read_table(file.path)
    names = [{"absent": "abrent"}.get(name, name) for name in table.column_names]
    assert "abrent" in names
    renamed = table.rename_columns(names).replace_schema_metadata(table.schema.metadata)
    pq.write_table(renamed, file.path, store_schema=True)
    (_, bad) = Archive(tmp_path).check(Archive(tmp_path).batches()[0])
    assert list(bad.values()) == ["the file cannot be read: its column 'abrent' is none that an archive has"]


@pytest.mark.parametrize(
    "error",
    [
        OSError("Couldn't deserialize thrift: std::bad_alloc"),
        OSError("ZSTD decompression failed: Allocation error : not enough memory"),
        pa.ArrowInvalid("IOError: Cannot allocate memory"),
    ],
)
def test_lack_of_memory_that_pyarrow_reports_as_damage_is_none(error: Exception) -> None:
    with pytest.raises(MemoryError):
        raise as_unreadable(error)
    with pytest.raises(UnreadableError):
        raise as_unreadable(OSError("Couldn't deserialize thrift: No more data to read."))
