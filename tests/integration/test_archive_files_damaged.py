"""Archives with files that are damaged, foreign, planted, or that a merge has replaced."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import archived_letters
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archived_letters import EVENTS, Letters, in_order, paths, read, values, write, writer

from heronpy.archive import Archive, DeadLetters
from heronpy.archive.footer import UnreadableError
from heronpy.archive.merging import merge_files, plan_merges, publish
from heronpy.errors import HeronError, NotFoundError

letters = archived_letters.letters


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def not_parquet(path: Path) -> None:
    path.write_bytes(b"id,time\n1,2\n")


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_columns(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["id_hash"]), path)


def fewer_rows(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)


@pytest.mark.parametrize("damage", [truncated, not_parquet, foreign, empty, other_columns, fewer_rows])
def test_a_file_that_cannot_be_read_is_told_and_the_rest_is_read(tmp_path: Path, damage: Any) -> None:
    letters = DeadLetters(tmp_path / "job", "batch")
    for first in (0, 10, 20):
        write(tmp_path / "archive", letters, EVENTS[first : first + 10], first=first)
    archive = Archive(tmp_path / "archive")
    files = archive.batches()[0]
    damage(files[1].path)
    files = Archive(tmp_path / "archive").batches()[0]
    unread = Letters()
    assert len(read(tmp_path / "archive", unread)) == 20  # a run that did not check reads the rest, and says so
    assert [where for where, _, _ in unread.rows] == [str(files[1].path)]
    good, bad = Archive(tmp_path / "archive").check(files)
    assert (good, list(bad)) == ([files[0], files[2]], [files[1]])
    assert bad[files[1]].startswith("the file cannot be read: ")
    assert files[1].path.exists(), "no file is moved"
    files[1].path.unlink()
    with pytest.raises(NotFoundError, match="run again"):
        Archive(tmp_path / "archive").check(files)


def test_a_damaged_row_group_is_set_aside_and_the_others_are_read(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, EVENTS[:40])
    (path,) = paths(tmp_path)
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=10, write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(2).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 0x10
    path.write_bytes(content)
    assert values(tmp_path, letters) == EVENTS[:20] + EVENTS[30:40]
    ((where, _, reason),) = letters.rows
    assert where == f"{path}, row group 2"
    assert "cannot be read" in reason


def test_no_flipped_bit_makes_a_wrong_row_or_an_error(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, EVENTS[:50])
    (path,) = paths(tmp_path)
    whole = path.read_bytes()
    expected = read(tmp_path, letters)
    footer_at = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    rng = random.Random(20240506)
    for _ in range(300):
        content = bytearray(whole)
        content[rng.randrange(4, footer_at)] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        found = Letters()
        assert read(tmp_path, found) == ({} if found.rows else expected)


def test_a_damaged_footer_never_ends_a_run(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, EVENTS[:50])
    (path,) = paths(tmp_path)
    whole = path.read_bytes()
    footer_at = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    rng = random.Random(7)
    for _ in range(300):
        content = bytearray(whole)
        content[rng.randrange(footer_at, len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        archive = Archive(tmp_path)
        files = archive.batches()[0]
        try:
            archive.footer(files[0])
        except UnreadableError:
            continue
        for split in archive.splits(files, 1 << 20):
            list(split.read(letters))


def test_no_damaged_byte_hides_rows(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, EVENTS[:50])
    (path,) = paths(tmp_path)
    whole = path.read_bytes()
    footer_at = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for at in range(footer_at, whole.index(b'{"format"')):
        path.write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
        found = Letters()
        assert len(read(tmp_path, found)) == (0 if found.rows else 50), at


def test_a_row_that_cannot_be_unpickled_is_named(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, [("k", index) for index in range(5)], codec="pickle")
    (path,) = paths(tmp_path)
    table = pq.read_table(path)
    pickled = table["pickled"].to_pylist()
    pickled[3] = b"junk"
    table = table.set_column(table.schema.get_field_index("pickled"), "pickled", pa.array(pickled))
    pq.write_table(table, path)
    assert values(tmp_path, letters) == [("k", 0), ("k", 1), ("k", 2), ("k", 4)]
    ((where, row, reason),) = letters.rows
    assert where == f"{path}, row group 0, row 3"
    assert row == "id-3"
    assert "UnpicklingError" in reason


def test_a_note_that_names_no_field_is_a_dead_letter(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, [{"a": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 4}])
    (path,) = paths(tmp_path)
    table = pq.read_table(path)
    notes = pa.array(['["/b"]', '["/x/y"]', None])
    pq.write_table(table.set_column(table.schema.get_field_index("absent"), "absent", notes), path)
    assert values(tmp_path, letters) == [{"a": 1}, {"a": 3, "b": 4}]
    assert letters.rows[0][0] == f"{path}, row group 0, row 1"


class Planted:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("name", ["planted.parquet", "1-merged-planted.parquet"])
def test_a_planted_file_of_another_codec_is_refused_and_never_unpickled(tmp_path: Path, name: str) -> None:
    mark, directory, letters = tmp_path / "unpickled", tmp_path / "archive", DeadLetters(tmp_path / "job", "batch")
    write(directory, letters, EVENTS[:10])
    write(tmp_path / "theirs", letters, [Planted(mark)], codec="pickle")
    (theirs,) = paths(tmp_path / "theirs")
    shutil.copy(theirs, directory / "batch=0" / name)
    mark.unlink(missing_ok=True)
    unread = Letters()
    assert len(read(directory, unread)) == 10  # whoever reads without a check
    assert [reason for _, _, reason in unread.rows] == [
        "the file cannot be read: its codec is 'pickle', and the archive's is 'columns'"
    ]
    archive = Archive(directory)
    assert merge_files(plan_merges(directory, 0, archive.batches()[0], min_files=2, target_bytes=1 << 30)[0]).skipped
    good, bad = archive.check(archive.batches()[0])
    assert (len(good), [file.path.name for file in bad]) == (1, [name])
    assert not mark.exists()


def test_a_codec_that_does_not_exist_is_refused(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, EVENTS[:10])
    (path,) = paths(tmp_path)
    schema = json.loads((tmp_path / "_schema.json").read_text())
    table = pq.read_table(path)
    metadata = json.loads(table.schema.metadata[b"heronpy"]) | {"codec": "marshal"}
    table = table.replace_schema_metadata({b"heronpy": json.dumps(metadata).encode()})
    pq.write_table(table.append_column("pickled", pa.array([b""] * 10, pa.binary())), path)
    assert (read(tmp_path, letters), len(letters.rows)) == ({}, 1)
    (tmp_path / "_schema.json").write_text(json.dumps(schema | {"codec": "marshal"}))
    with pytest.raises(HeronError, match="unknown codec 'marshal'"):
        _ = Archive(tmp_path).codec


SHORT = """
import resource, sys
from heronpy.archive import Archive, DeadLetters
from heronpy.errors import HeronError
from pathlib import Path
archive, letters = Archive(Path(sys.argv[1])), DeadLetters(Path(sys.argv[2]), "batch")
files = archive.batches()[0]
splits = archive.splits(files, 1 << 20)
kind, limit = sys.argv[3], int(sys.argv[4])
now = int(open("/proc/self/statm").read().split()[0]) * 4096 if kind == "AS" else 0
resource.setrlimit(getattr(resource, "RLIMIT_" + kind), (now + limit,) * 2)
try:
    for split in splits:
        list(split.read(letters))
    archive.check(files)
except HeronError as error:
    print(error)
print("letters", letters.count)
"""


@pytest.mark.parametrize(
    ("kind", "limit", "expected"),
    [("AS", 2 << 20, "not enough memory to read|temporarily unavailable"), ("NOFILE", 3, "Too many open files")],
)
def test_what_a_busy_machine_cannot_read_is_not_taken_for_damaged(
    tmp_path: Path, letters: Letters, kind: str, limit: int, expected: str
) -> None:
    write(tmp_path / "archive", letters, [{"text": random.Random(i).randbytes(8000).hex()} for i in range(59)])
    (path,) = paths(tmp_path / "archive")
    script = [sys.executable, "-c", SHORT, str(tmp_path / "archive"), str(tmp_path / "job"), kind, str(limit)]
    said = subprocess.run(script, capture_output=True, text=True, timeout=300, check=False)
    assert re.search(expected, said.stdout), said
    assert "letters 0" in said.stdout
    assert path.exists()
    assert not (tmp_path / "job").exists()


def test_files_that_a_merge_replaced_do_not_count(tmp_path: Path, letters: Letters) -> None:
    kinds = [EVENTS[:10], [{"n": 1.5}, {"n": 7, "new": [{"x": None}, {}]}], [{}], EVENTS[10:15]]
    first = 0
    for elements in kinds:
        write(tmp_path, letters, elements, first=first)
        first += len(elements)
    archive = Archive(tmp_path)
    before, fingerprint = read(tmp_path, letters), archive.fingerprint(archive.batches()[0])
    for round_ in range(3):
        files = archive.batches()[0]
        (plan,) = plan_merges(tmp_path, 0, files, min_files=2, target_bytes=1 << 27)
        merged = merge_files(plan)
        assert read(tmp_path, letters).keys() == before.keys()
        publish(merged)
        after = read(tmp_path, letters)
        assert repr(sorted((id_, row[0], in_order(row[1])) for id_, row in after.items())) == repr(
            sorted((id_, row[0], in_order(row[1])) for id_, row in before.items())
        )
        assert archive.fingerprint(archive.batches()[0]) == fingerprint
        assert len(archive.batches()[0]) == 1
        write(tmp_path, letters, [{"round": round_}], first=first + round_)
        before, fingerprint = read(tmp_path, letters), archive.fingerprint(archive.batches()[0])
    # The first merge's file may go before those that it replaced: these stay replaced.
    for file in archive.replaced():
        if "-merged-" in file.path.name:
            file.path.unlink()
    assert read(tmp_path, letters).keys() == before.keys()
    for file in archive.replaced():
        file.path.unlink()
    assert read(tmp_path, letters).keys() == before.keys()
    assert len(list(paths(tmp_path))) == 2
    assert letters.rows == []


def test_of_two_merges_of_the_same_files_the_first_counts(tmp_path: Path, letters: Letters) -> None:
    for first in (0, 10):
        write(tmp_path, letters, EVENTS[first : first + 10], first=first)
    archive = Archive(tmp_path)
    (plan,) = plan_merges(tmp_path, 0, archive.batches()[0], min_files=2, target_bytes=1 << 27)
    merges = [merge_files(plan), merge_files(plan)]
    assert [publish(merged) is None for merged in merges] == [False, True]
    assert archive.rows(archive.batches()[0]) == 20
    assert list((tmp_path / "_tmp").iterdir()) == []


def test_two_merges_of_the_same_files_at_once_count_once(tmp_path: Path, letters: Letters) -> None:
    for first in (0, 10):
        write(tmp_path, letters, EVENTS[first : first + 10], first=first)
    archive = Archive(tmp_path)
    sources = archive.batches()[0]
    fingerprint = archive.fingerprint(sources)
    (plan,) = plan_merges(tmp_path, 0, sources, min_files=2, target_bytes=1 << 27)
    slow, fast = merge_files(plan), merge_files(plan)
    counts = publish(fast)
    assert isinstance(counts, Path)
    assert isinstance(slow.tmp, Path)
    late = slow.tmp.rename(counts.with_name(counts.name.replace("-merged-", "-merged-z")))  # it has looked before
    for gone in (False, True):
        assert [file.path for file in archive.batches()[0]] == [counts]
        assert archive.fingerprint(archive.batches()[0]) == fingerprint
        assert {file.path for file in archive.replaced()} == {late, *(() if gone else (file.path for file in sources))}
        for file in sources:
            file.path.unlink(missing_ok=True)
    write(tmp_path, letters, EVENTS[20:30], first=20)
    (plan,) = plan_merges(tmp_path, 0, archive.batches()[0], min_files=2, target_bytes=1 << 27)
    publish(merge_files(plan))
    for found in archive.replaced():
        found.path.unlink()
    assert archive.rows(archive.batches()[0]) == 30
    assert not late.exists()


def test_the_order_of_keys_does_not_matter_to_a_merge(tmp_path: Path, letters: Letters) -> None:
    elements = [{"b": 1, "a": 2, "d": {"z": 1, "y": 2}}, {"a": 3, "d": {"y": 3, "z": 4}, "b": 5}]
    for first, element in enumerate(elements * 2):
        write(tmp_path, letters, [element], first=first)
    (plan,) = plan_merges(tmp_path, 0, Archive(tmp_path).batches()[0], min_files=2, target_bytes=1 << 27)
    publish(merge_files(plan))
    assert values(tmp_path, letters) == elements * 2
    assert len({str(pq.read_schema(path).field("value").type) for path in paths(tmp_path)}) == 1


def test_a_damaged_file_stays_out_of_a_merge(tmp_path: Path, letters: Letters) -> None:
    for first in (0, 10, 20):
        write(tmp_path, letters, EVENTS[first : first + 10], first=first)
    files = Archive(tmp_path).batches()[0]
    content = bytearray(files[1].path.read_bytes())
    content[60] ^= 1
    files[1].path.write_bytes(content)
    (plan,) = plan_merges(tmp_path, 0, files, min_files=2, target_bytes=1 << 27)
    merged = merge_files(plan)
    assert (merged.files, merged.rows) == ((files[0].path, files[2].path), 20)
    assert merged.skipped[0].startswith(str(files[1].path))
    publish(merged)
    assert values(tmp_path, letters) == EVENTS[:10] + EVENTS[20:30]
    assert list((tmp_path / "_tmp").iterdir()) == []


def test_a_damaged_schema_is_one_line(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, ["x"])
    (tmp_path / "_schema.json").write_text('{"codec": ')
    with pytest.raises(HeronError, match=r"_schema.json cannot be read") as refusal:
        writer(tmp_path, letters)
    assert "\n" not in str(refusal.value)
    (tmp_path / "_schema.json").write_text(json.dumps({"codec": "columns"}))
    with pytest.raises(HeronError, match="cannot be read"):
        _ = Archive(tmp_path).codec
