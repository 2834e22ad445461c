"""Dead letters: what is set aside can be read again, is bounded, and is counted."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.archive import DeadLetters, dead_letter_counts
from heronpy.errors import ConfigError


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


class Items(dict):
    """Its items cannot be asked for."""

    def items(self) -> None:  # type: ignore[override]
        raise RuntimeError

    def __repr__(self) -> str:
        sys.exit("not to be shown")


def lines(directory: Path, origin: str) -> list[dict]:
    paths = sorted((directory / "dead-letter" / origin).glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_a_row_is_there_when_the_call_returns(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, "reader")
    letters("a.csv, row 7", {"x": [1, None]}, "x is not a number")
    (line,) = lines(tmp_path, "reader")
    assert line.pop("at") > 1e9
    assert line == {"where": "a.csv, row 7", "reason": "x is not a number", "row": {"x": [1, None]}}
    assert letters.count == 1


@pytest.mark.parametrize(
    ("row", "written"),
    [
        (b"\xff", r"b'\xff'"),
        (float("nan"), "nan"),
        ({1, }, "{1}"),
        ("\ud800", "\ud800"),
        ("x" * 100_000, "x" * 65_536),
        (["x" * 100_000], '["' + "x" * 65_534),
        (Items(a=1), "<Items without repr: SystemExit>"),
        (Unprintable(), "<Unprintable without repr: RuntimeError>"),
    ],
)  # fmt: skip
def test_any_row_can_be_set_aside_and_is_bounded(tmp_path: Path, row: object, written: str) -> None:
    DeadLetters(tmp_path, "x")("here", row, "why")
    assert lines(tmp_path, "x")[0]["row"] == written


def test_nothing_is_created_before_the_first_row(tmp_path: Path) -> None:
    DeadLetters(tmp_path, "x").close()
    assert list(tmp_path.iterdir()) == []
    assert dead_letter_counts(tmp_path) == {}


def test_rows_beyond_the_bound_are_only_counted(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, "x", file_bytes=1000, files_per_process=2)
    for number in range(100):
        letters(f"row {number}", "y" * 100, "why")
    written = lines(tmp_path, "x")
    assert 0 < len(written) < 20
    assert max(path.stat().st_size for path in (tmp_path / "dead-letter/x").iterdir()) <= 1000
    assert letters.count == 100
    assert dead_letter_counts(tmp_path) == {"x": 100}


def test_origins_are_counted_apart(tmp_path: Path) -> None:
    for origin, count in (("a", 1), ("b", 3)):
        with DeadLetters(tmp_path, origin) as letters:
            for _ in range(count):
                letters("here", None, "why")
    assert dead_letter_counts(tmp_path) == {"a": 1, "b": 3}


def test_a_pickled_copy_writes_a_file_of_its_own(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, "x")
    letters("here", 1, "why")
    copy = pickle.loads(pickle.dumps(letters))
    copy("there", 2, "why")
    assert (letters.count, copy.count) == (1, 1)
    assert len(list((tmp_path / "dead-letter/x").iterdir())) == 2
    assert dead_letter_counts(tmp_path) == {"x": 2}


def test_a_fork_does_not_write_into_its_parents_file(tmp_path: Path) -> None:
    script = (
        "import os, sys; from heronpy.archive import DeadLetters; d = DeadLetters(sys.argv[1], 'x'); d('p', 1, 'w')\n"
        "pid = os.fork()\nd('p' if pid else 'c', 2, 'w')\nif pid: os.waitpid(pid, 0)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=300)
    by_file = [
        {json.loads(line)["where"] for line in path.read_text().splitlines()}
        for path in (tmp_path / "dead-letter/x").iterdir()
    ]
    assert sorted(by_file, key=str) == [{"c"}, {"p"}]


@pytest.mark.parametrize("origin", ["", "..", "a/b", ".hidden", "x" * 300, "a\nb"])
def test_an_origin_is_a_name_not_a_path(tmp_path: Path, origin: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a folder"):
        DeadLetters(tmp_path, origin)


def test_dead_letters_need_no_pyarrow() -> None:
    script = "import sys, heronpy.archive; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300, env={**os.environ})
