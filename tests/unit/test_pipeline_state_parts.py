"""State of checkpoints read and written from outside of a topology, by parts; Spark only runs the parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.checkpoints import (
    ComponentEntry,
    Kind,
    Manifest,
    open_object,
    open_storage,
    read_saved,
)
from heronpy.errors import CheckpointError, NotFoundError, UntrustedError, UsageError
from heronpy.pipeline.state_parts import state_parts
from heronpy.pipeline.state_writing import StateRow, StateSpec, by_task, state_row, write_part
from heronpy.state import Place, TaskStates

GROUPS = 64
NAME = "count"
COUNTS = StateSpec("counts", Kind.KEYED, "pickle", 1, timed=False)
SEEN = StateSpec("seen", Kind.KEYED, "pickle", 1, timed=True)
OFFSETS = StateSpec("offsets", Kind.SPLIT, "msgpack", 2, timed=False)


def written(directory: Path, specs: list[StateSpec], rows: list[StateRow], tasks: int = 3) -> str:
    """A checkpoint of one component, written in so many parts."""
    placed: list[list[StateRow]] = [[] for _ in range(tasks)]
    for task, row in by_task(rows, tasks, GROUPS):
        placed[task].append(row)
    with open_storage(str(directory)) as storage:
        refs = [
            write_part(storage, Place("batch-1", NAME, index, tasks, GROUPS), specs, placed[index], epoch=index)[0]
            for index in range(tasks)
        ]
        manifest = Manifest(
            topology_id="batch-1",
            checkpoint_id=1,
            epoch=0,
            groups=GROUPS,
            components={NAME: ComponentEntry(tasks, 0)},
            objects=tuple(refs),
        )
        assert storage.create(manifest.name, manifest.encode())
    return str(directory)


def restored(url: str, index: int, tasks: int) -> TaskStates:
    """A task of a topology that begins with it."""
    with open_storage(url) as storage:
        (name,) = storage.names("manifests/")
        manifest = Manifest.decode(storage.read(name), name)
        saved = read_saved(manifest, NAME, index, tasks, lambda ref: open_object(storage, ref)).elsewhere()
    return TaskStates(Place("words-1", NAME, index, tasks, GROUPS), saved, clock_ms=lambda: 10_000)


ENTRIES: dict[Any, Any] = {
    **{f"key {n}": n for n in range(300)},
    ("a", 1): [1, {"b": (2, None)}],
    2.5: "text",
    None: b"bytes",
    True: {3, 4},
}


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_tasks_of_any_number_begin_with_what_was_written(tmp_path: Path, tasks: int) -> None:
    rows = [(0, key, value, 0) for key, value in ENTRIES.items()]
    rows += [(1, f"split {n}", n, 0) for n in range(9)] + [(1, "done", None, 0)]
    url = written(tmp_path, [COUNTS, OFFSETS], rows)
    counts: dict[Any, Any] = {}
    offsets: dict[Any, Any] = {}
    finished = 0
    for index in range(tasks):
        states = restored(url, index, tasks)
        own = states.keyed_state("counts")
        splits = states.split_state("offsets", codec="msgpack", version=2)
        states.check_claimed()
        assert not counts.keys() & set(own)
        counts |= dict(own)
        offsets |= dict(splits)
        finished += splits.owns("done") and splits.is_finished("done")
    assert counts == ENTRIES
    assert offsets == {f"split {n}": n for n in range(9)}
    assert finished == 1


@pytest.mark.parametrize("parts", [None, 1, 2, 7, GROUPS])
def test_each_entry_is_read_in_one_part(tmp_path: Path, parts: int | None) -> None:
    rows = [(0, key, value, 0) for key, value in ENTRIES.items()] + [(1, "a", 5, 0), (1, "b", None, 0)]
    url = written(tmp_path, [COUNTS, OFFSETS], rows)
    found = state_parts(url, NAME, "counts", parts=parts)
    assert len(found) == (parts or 3)
    pairs = [(entry.key, part.value(entry), entry.task) for part in found for entry in part.entries()]
    assert len(pairs) == len(ENTRIES)
    assert {key: value for key, value, _ in pairs} == ENTRIES
    assert {task for _, _, task in pairs} == {None}
    (offsets,) = state_parts(url, NAME, "offsets", parts=parts)
    assert {entry.key: offsets.value(entry) for entry in offsets.entries()} == {"a": 5, "b": None}


def test_times_of_writes_stay_so_that_old_keys_expire(tmp_path: Path) -> None:
    rows = [(0, "new", 1, 9_500), (0, "old", 2, 1_000), (0, "middle", 3, 6_000)]
    url = written(tmp_path, [SEEN], rows, tasks=1)
    (part,) = state_parts(url, NAME, "seen")
    assert {entry.key: entry.written_ms for entry in part.entries()} == {"new": 9_500, "old": 1_000, "middle": 6_000}
    assert dict(restored(url, 0, 1).keyed_state("seen", ttl_s=5).items()) == {"new": 1, "middle": 3}


def test_a_key_that_is_there_twice_is_refused_by_name(tmp_path: Path) -> None:
    for first, second in (("a", "a"), (1, True), ((1, "b"), (1.0, "b"))):
        with pytest.raises(UsageError, match=r"component 'count', state 'counts': key .* is there twice"):
            written(tmp_path, [COUNTS], [(0, first, 1, 0), (0, second, 2, 0)])
    with pytest.raises(UsageError, match=r"state 'offsets': key 'a' is there twice"):
        written(tmp_path, [OFFSETS], [(0, "a", None, 0), (0, "a", 1, 0)])


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"state 'counts': the value of key 'a', a generator, cannot be saved"):
        written(tmp_path, [COUNTS], [(0, "a", (one for one in ()), 0)], tasks=1)
    assert not list(tmp_path.rglob("*.base"))


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no checkpoint"):
        state_parts(str(tmp_path / "none"), NAME, "counts")
    url = written(tmp_path, [COUNTS], [(0, "a", 1, 0)])
    with pytest.raises(NotFoundError, match=r"no component 'sum'; it has: count"):
        state_parts(url, "sum", "counts")
    with pytest.raises(NotFoundError, match=r"no state 'sums' in checkpoint 1 in .*; it has: counts"):
        state_parts(url, NAME, "sums")
    with pytest.raises(NotFoundError, match="00002"):
        state_parts(url, NAME, "counts", checkpoint=2)
    with pytest.raises(UsageError, match="64 key groups, and cannot be divided into 65 parts"):
        state_parts(url, NAME, "counts", parts=65)


def test_nothing_is_unpickled_of_what_others_could_have_written(tmp_path: Path) -> None:
    url = written(tmp_path, [COUNTS], [(0, "a", 1, 0)], tasks=1)
    (part,) = state_parts(url, NAME, "counts")
    (tmp_path / "objects").chmod(0o777)
    with pytest.raises(UntrustedError, match="nothing of it is unpickled"):
        next(part.entries())


def test_binary_in_a_row_of_spark_becomes_bytes_and_bytearrays_of_users_stay() -> None:
    row_of = pytest.importorskip("pyspark.sql").Row
    key = row_of(a=bytearray(b"k"), b=[bytearray(b"l")])
    value = row_of(b=bytearray(b"v"), all=[bytearray(b"x")], by_name={"a": bytearray(b"y")})
    # By their text: a bytearray is equal to its bytes.
    plain = state_row(1, row_of(key=key, value=value, written_ms=5))
    assert repr(plain) == repr((1, (b"k", (b"l",)), (b"v", [b"x"], {"a": b"y"}), 5))
    assert repr(state_row(0, row_of(key=bytearray(b"k"), value=bytearray(b"v")))) == repr((0, b"k", b"v", 0))
    assert repr(state_row(0, (bytearray(b"k"), [bytearray(b"v")]))) == repr((0, b"k", [bytearray(b"v")], 0))
