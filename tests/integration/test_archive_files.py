"""An archive on disk: what is written is read, what changes is refused, what is damaged is set aside."""

from __future__ import annotations

import json
import pickle
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.archive import Archive, ArchiveWriter, DeadLetters
from heronpy.archive import footer as _footer
from heronpy.archive.footer import UnreadableError, rows_per_group
from heronpy.archive.id_hash import hash_of
from heronpy.archive.merging import merge_files, plan_merges, publish
from heronpy.errors import ConfigError, HeronError, NotFoundError, TupleError

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


def test_rows_come_back_from_the_file_of_their_batch(tmp_path: Path, letters: Letters) -> None:
    assert write(tmp_path, letters, EVENTS) == 4
    rows = read(tmp_path, letters)
    assert rows == {f"id-{index}": (index * 60_000, event) for index, event in enumerate(EVENTS)}
    for batch, files in Archive(tmp_path).batches().items():
        (file,) = files
        assert file.path.parent.name == f"batch={batch}"
        assert {time_ms // HOUR for time_ms in pq.read_table(file.path)["time_ms"].to_pylist()} == {batch}
    assert letters.rows == []


ELEMENT = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5), st.binary(max_size=5)
)
VALUE = st.recursive(
    ELEMENT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUE, max_size=3) | VALUE, min_size=1, max_size=8))
def test_each_element_comes_back_or_is_a_dead_letter(
    tmp_path_factory: pytest.TempPathFactory, elements: list[Any]
) -> None:
    directory, letters = tmp_path_factory.mktemp("archive"), Letters()
    write(directory, letters, [None], first=-1)  # so that no element is the first, which would be refused at once
    try:
        write(directory, letters, elements)
    except TupleError:
        return
    rows = read(directory, letters)
    del rows["id--1"]
    refused = {where.partition("id ")[2].partition(",")[0]: row for where, row, _ in letters.rows}
    assert rows.keys() | refused.keys() == {f"id-{index}" for index in range(len(elements))}
    assert not rows.keys() & refused.keys()
    for id_, (_, value) in rows.items():
        assert repr(_sorted(value)) == repr(_sorted(elements[int(id_[3:])]))
    shutil.rmtree(directory)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("times_ms", [[-1, 0], [-HOUR, -HOUR - 1], [0, HOUR - 1, HOUR]])
def test_batches_are_the_time_divided_by_their_length_also_before_1970(
    tmp_path: Path, letters: Letters, times_ms: list[int]
) -> None:
    with_ = writer(tmp_path, letters)
    for index, time_ms in enumerate(times_ms):
        with_.add(f"id-{index}", time_ms, "x")
    with_.commit()
    assert list(Archive(tmp_path).batches()) == sorted({time_ms // HOUR for time_ms in times_ms})


def test_pickled_elements_come_back(tmp_path: Path, letters: Letters) -> None:
    elements = [("k", 1), date(2024, 5, 6), {1: {2}}]
    write(tmp_path, letters, elements, codec="pickle")
    assert values(tmp_path, letters) == elements


def test_an_element_changed_after_add_is_archived_as_it_was(tmp_path: Path, letters: Letters) -> None:
    event = {"a": 1}
    with_ = writer(tmp_path, letters)
    with_.add("id-0", 0, event)
    event["b"] = 2
    with_.commit()
    assert values(tmp_path, letters) == [{"a": 1}]


@pytest.mark.parametrize(
    ("codec", "value", "reason"),
    [
        ("columns", ("k", 1), r"the element is a tuple, .*: map it first, or use codec='pickle'"),
        ("columns", {"at": date(2024, 5, 6)}, "field 'at' is a date"),
        ("pickle", lambda: None, "cannot be pickled"),
    ],
)
def test_elements_that_the_codec_cannot_hold_are_refused_at_the_first(
    tmp_path: Path, letters: Letters, codec: str, value: Any, reason: str
) -> None:
    with pytest.raises(TupleError, match=reason) as refusal:
        writer(tmp_path, letters, codec).add("id-0", 0, value)
    assert "\n" not in str(refusal.value)


def test_values_of_other_types_are_archived_and_what_has_no_place_is_a_dead_letter(
    tmp_path: Path, letters: Letters
) -> None:
    other: dict[int, Any] = {7: {"n": "seven"}, 70: {"n": 2**64}, 71: "text"}
    refused: dict[int, Any] = {150: {"n": (1,)}, 199: {3: 4}}
    elements = [(other | refused).get(index, event) for index, event in enumerate(EVENTS)]
    write(tmp_path, letters, elements)
    assert values(tmp_path, letters) == [value for index, value in enumerate(elements) if index not in refused]
    assert [row for _, row, _ in letters.rows] == list(refused.values())
    assert "id id-150, time 9000000" in letters.rows[0][0]
    assert "field 'n' is a tuple, which is none of" in letters.rows[0][2]


def test_a_strange_first_element_sends_no_other_to_the_dead_letters(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, ["header"])
    write(tmp_path, letters, EVENTS, first=1)
    assert values(tmp_path, letters) == ["header", *EVENTS]
    assert letters.rows == []


def test_too_many_elements_without_a_place_end_the_task(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, [{"a": 1}])
    with_ = writer(tmp_path, letters)
    for index in range(200):
        with_.add(f"id-{index}", 0, {"a": (index,)} if index else {"a": 1})
    with pytest.raises(TupleError, match="199 of 200 elements do not fit the first ones"):
        with_.commit()
    assert (with_.waiting, letters.rows) == (200, [])


@pytest.mark.parametrize("time_ms", [1.5, None, 10**18, -(10**18), True])
def test_a_time_that_is_no_ms_is_a_dead_letter(tmp_path: Path, letters: Letters, time_ms: Any) -> None:
    with_ = writer(tmp_path, letters)
    with_.add("id-0", time_ms, "x")
    assert (with_.commit(), len(letters.rows)) == (0, 1)


def test_a_new_field_is_a_new_version_and_old_files_are_read(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, [{"a": 1}])
    assert Archive(tmp_path).schema.version == 2
    write(tmp_path, letters, [{"a": 1, "b": None}, {"a": 2.5}], first=1)
    write(tmp_path, letters, [{"b": ["x"]}], first=3)
    schema = Archive(tmp_path).schema
    assert (schema.version, schema.element) == (4, {"dict": {"a": "float", "b": {"list": "str"}}})
    read_back = values(tmp_path, letters)
    assert read_back == [{"a": 1}, {"a": 1, "b": None}, {"a": 2.5}, {"b": ["x"]}]
    assert [type(value.get("a")) for value in read_back] == [int, int, float, type(None)]


def test_an_int_that_a_field_with_floats_cannot_hold_is_archived(tmp_path: Path, letters: Letters) -> None:
    write(tmp_path, letters, [{"a": 2**60 + 1}])
    write(tmp_path, letters, [{"a": 2**60 + 1}, {"a": 0.5}, {"a": 7}], first=1)
    assert values(tmp_path, letters) == [{"a": 2**60 + 1}, {"a": 2**60 + 1}, {"a": 0.5}, {"a": 7}]
    assert letters.rows == []


def test_two_writers_learn_from_each_other(tmp_path: Path, letters: Letters) -> None:
    one, other = writer(tmp_path, letters), writer(tmp_path, letters, task="archive-1")
    one.add("id-0", 0, {"a": 1})
    other.add("id-1", 0, {"a": "text"})
    one.commit()
    other.commit()
    assert values(tmp_path, letters) == [{"a": 1}, {"a": "text"}]
    assert letters.rows == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"codec": "pickle"}, "has codec columns, not pickle"),
        ({"batch_length_ms": 1000}, "has batch length 3600000 ms, not 1000 ms"),
        ({"codec": "csv"}, "unknown codec 'csv'"),
        ({"task": "../x"}, "cannot be part of a file name"),
    ],
)
def test_another_codec_or_batch_length_is_refused(
    tmp_path: Path, letters: Letters, options: dict[str, Any], reason: str
) -> None:
    write(tmp_path, letters, ["x"])
    with pytest.raises(ConfigError, match=reason):
        write(tmp_path, letters, ["x"], **options)


def test_rows_wait_when_the_disk_does_not_take_them(tmp_path: Path, letters: Letters) -> None:
    with_ = writer(tmp_path / "archive", letters)
    with_.add("id-0", 0, "x")
    (tmp_path / "archive/batch=0").write_text("in the way")
    with pytest.raises(HeronError, match="cannot write archive"):
        with_.commit()
    assert with_.waiting == 1
    (tmp_path / "archive/batch=0").unlink()
    assert with_.commit() == 1
    assert values(tmp_path / "archive", letters) == ["x"]


def test_progress_is_the_least_of_the_tasks_of_a_run(tmp_path: Path, letters: Letters) -> None:
    archive = Archive(tmp_path)
    one = writer(tmp_path, letters, run="r1", tasks=2)
    assert archive.complete_before_ms() == -(2**63)
    one.progress(500)
    assert archive.complete_before_ms() == -(2**63)  # the other task has said nothing
    other = writer(tmp_path, letters, task="archive-1", run="r1", tasks=2)
    other.progress(300)
    assert archive.complete_before_ms() == 300
    other.progress(200)  # a replay does not take back what is there
    assert archive.complete_before_ms() == 300
    other.progress(None)
    assert archive.complete_before_ms() == 500
    one.progress(None)
    assert archive.complete_before_ms() is None


def test_a_new_run_keeps_what_the_last_one_completed_but_not_its_end(tmp_path: Path, letters: Letters) -> None:
    old = writer(tmp_path, letters, run="r1")
    old.progress(700)
    old.progress(None)
    assert Archive(tmp_path).complete_before_ms() is None
    new = writer(tmp_path, letters, run="r2")
    new.progress(100)
    assert Archive(tmp_path).complete_before_ms() == 700
    writer(tmp_path, letters, run="r2").progress(900)  # the task was restarted
    assert Archive(tmp_path).complete_before_ms() == 900


def test_a_writer_that_has_just_opened_ends_that_everything_is_complete(tmp_path: Path, letters: Letters) -> None:
    old = writer(tmp_path, letters)
    old.progress(700)
    old.progress(None)
    assert Archive(tmp_path).complete_before_ms() is None
    writer(tmp_path, letters)  # a restart of the task
    assert Archive(tmp_path).complete_before_ms() == 700
    writer(tmp_path, letters).progress(None)
    assert Archive(tmp_path).complete_before_ms() is None
    writer(tmp_path, letters, run="r2", tasks=2)  # or another run, of which the second task is not there yet
    assert Archive(tmp_path).complete_before_ms() == 700


def test_progress_needs_a_commit(tmp_path: Path, letters: Letters) -> None:
    with_ = writer(tmp_path, letters)
    with_.add("id-0", 0, "x")
    with pytest.raises(HeronError, match="1 elements wait"):
        with_.progress(5)


def test_splits_hold_every_row_group_once(tmp_path: Path, letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    text = [rng.randbytes(500).hex() for _ in range(1000)]
    assert 20_000 < rows_per_group(pa.table({"x": text * 10})) < 30_000  # of 1 kB
    monkeypatch.setattr(_footer, "ROW_GROUP_BYTES", _footer.ROW_GROUP_BYTES // 10)
    with_ = writer(tmp_path, letters)
    count = 6_000
    expected = {f"id-{index}": (0, f"{index}{text[rng.randrange(1000)]}") for index in range(count)}
    for id_, (time_ms, value) in expected.items():
        with_.add(id_, time_ms, value)
    with_.commit()
    archive = Archive(tmp_path)
    splits = archive.splits(archive.batches()[0], 1 << 20)
    assert len(splits) == 3
    assert read(tmp_path, letters) == expected


def test_small_files_are_read_together(tmp_path: Path, letters: Letters) -> None:
    for first in range(10):
        write(tmp_path, letters, [{"a": 1}], first=first)
    archive = Archive(tmp_path)
    (files,) = archive.batches().values()
    assert len(archive.splits(files, 1 << 20)) == 1
    assert len(archive.splits(files, files[0].size_bytes * 2 + 1)) == 5


def test_a_fingerprint_changes_with_every_row_and_nothing_else(tmp_path: Path, letters: Letters) -> None:
    def now() -> str:
        archive = Archive(tmp_path)
        return archive.fingerprint(file for files in archive.batches().values() for file in files)

    seen = [now()]
    for first, elements in ((0, ["x"]), (1, ["x", "y"]), (0, ["x"]), (100, ["x"])):
        write(tmp_path, letters, elements, first=first)
        seen.append(now())
    assert len(set(seen)) == 5
    assert now() == seen[-1]


def test_a_fingerprint_does_not_depend_on_how_rows_are_divided(tmp_path: Path, letters: Letters) -> None:
    for name, parts in (("one", [(0, 50)]), ("two", [(20, 50), (0, 20)])):
        for begin, end in parts:
            write(tmp_path / name, letters, EVENTS[begin:end], first=begin)
    one, two = (Archive(tmp_path / name) for name in ("one", "two"))
    assert one.fingerprint(one.batches()[0]) == two.fingerprint(two.batches()[0])


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
        assert repr(sorted((id_, row[0], _sorted(row[1])) for id_, row in after.items())) == repr(
            sorted((id_, row[0], _sorted(row[1])) for id_, row in before.items())
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


def test_no_archive_says_so(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "none")
    assert not archive.exists
    assert archive.batches() == {}
    with pytest.raises(NotFoundError, match="no archive in"):
        _ = archive.codec
