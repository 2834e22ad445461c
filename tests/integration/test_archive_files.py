"""An archive on disk: what is written is read, what changes is refused, what is damaged is set aside."""

from __future__ import annotations

import random
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import archived_letters
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archived_letters import EVENTS, HOUR, Letters, in_order, read, values, write, writer
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.archive import Archive
from heronpy.archive import footer as _footer
from heronpy.archive.footer import rows_per_group
from heronpy.errors import ConfigError, HeronError, NotFoundError, TupleError

letters = archived_letters.letters


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
        assert repr(in_order(value)) == repr(in_order(elements[int(id_[3:])]))
    shutil.rmtree(directory)


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


def test_no_archive_says_so(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "none")
    assert not archive.exists
    assert archive.batches() == {}
    with pytest.raises(NotFoundError, match="no archive in"):
        _ = archive.codec
