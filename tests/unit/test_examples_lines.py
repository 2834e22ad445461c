"""The examples' input and output: every line once, words as the shell counts them, results all or nothing."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import HeronError, UsageError
from heronpy.examples import demo, results
from heronpy.examples.lines import read_lines
from heronpy.examples.word_count import words_of


def lines(text: bytes) -> list[bytes]:
    return text.removesuffix(b"\n").split(b"\n") if text else []


@given(text=st.binary(max_size=200).map(lambda b: b.replace(b"x", b"\n")), parts=st.integers(1, 5))
def test_all_parts_together_give_every_line_once_and_in_order(tmp_path_factory, text, parts):
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes(text)
    assert [line for part in range(parts) for line in read_lines([path], part, parts)] == lines(text)


@given(text=st.text(st.sampled_from("ab \n"), max_size=300), parts=st.integers(1, 4), longest=st.integers(8, 20))
def test_a_line_that_is_too_long_is_cut_between_words(tmp_path_factory, text, parts, longest):
    words = [word for word in text.split() if len(word) < longest]  # a longer word has to be cut
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_text(" ".join(words))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heronpy.examples.lines.LINE_BYTES_MAX", longest)
        pieces = [piece for part in range(parts) for piece in read_lines([path], part, parts)]
    assert max(map(len, pieces), default=0) <= longest
    assert [word for piece in pieces for word in words_of(piece)] == words


@given(text=st.binary(max_size=300))
def test_words_are_those_of_tr(text):
    shell = subprocess.run(
        ["sh", "-c", r"tr -cs 'A-Za-z' '\n' | tr 'A-Z' 'a-z'"],
        input=text,
        capture_output=True,
        check=True,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )
    assert [word for line in lines(text) for word in words_of(line)] == shell.stdout.decode().split()


def test_results_are_read_only_from_parts_that_are_finished(tmp_path: Path):
    results.write_results(tmp_path, 1, [("a", 2), ("b", 1)], {"words": 3})
    (tmp_path / "part-00000.tsv").write_text("half a\n")
    assert results.finished(tmp_path) == {1: {"words": 3}}
    assert results.read_results(tmp_path) == [["a", "2"], ["b", "1"]]
    assert not list(tmp_path.glob(".*"))


def test_an_output_directory_with_files_is_refused(tmp_path: Path):
    assert results.new_output(tmp_path / "new" / "deep").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="choose another --output"):
        results.new_output(tmp_path)


def test_an_output_directory_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be made: Not a directory"):
        results.new_output(tmp_path / "file" / "deep")


def test_the_demo_counts_its_input_as_the_shell_does_and_notices_a_wrong_count(tmp_path: Path):
    path = tmp_path / "input.txt"
    demo.make_input(path, size_bytes=200_000)
    expected = demo.expected_counts(path)
    counts = Counter(word for line in read_lines([path], 0, 1) for word in words_of(line))
    demo.verify(counts, expected)
    counts["import"] += 1
    with pytest.raises(HeronError, match="1 words are counted wrong: import"):
        demo.verify(counts, expected)
