"""The input of the batch benchmark: an archive as a topology leaves it, of lines with a Zipf distribution of words.

Half of a line is taken from a pool, so that making a gigabyte costs less than archiving it. Of every commit a few
lines are archived a second time with the same ids, as after a failure: batch runs have to find them.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from heronpy.archive import ArchiveWriter
from heronpy.errors import HeronError
from heronpy.examples.random_word_count import WORDS, random_words
from heronpy.examples.words_pipeline import BATCH_LENGTH_S
from heronpy.filesystem import Location, files_of

BATCHES = 10
BEGIN_S = 1_700_000_040
"""A multiple of the batch length."""
END_MS = (BEGIN_S + BATCHES * BATCH_LENGTH_S) * 1000
_HALVES = 50_000
_WORDS_PER_HALF = 8
_COMMIT_ROWS = 100_000
_REPLAYED = 0.002
"""The share of lines that are there twice."""
_FORMAT = 1


class Input(msgspec.Struct):
    """What is in the archive."""

    bytes: int
    """Of text, in UTF-8, with a newline after each line, without what is there twice."""
    lines: int
    words: int
    distinct_words: int
    replayed: int
    """Lines that are there twice."""
    format: int = _FORMAT


def archive_at(directory: Path, archive: Location, mb: float) -> Input:
    """Make the archive of a job in `directory`, unless it is there: `mb` of text (10^6 bytes).

    Raises:
        HeronError: the disk cannot be written.
    """
    note = directory / "input.json"
    try:
        made = msgspec.json.decode(note.read_bytes(), type=Input)
        if made.format == _FORMAT:
            return made
    except (FileNotFoundError, msgspec.DecodeError):
        pass
    shutil.rmtree(directory, ignore_errors=True)
    files_of(archive).delete_folder(archive)
    directory.mkdir(parents=True)
    made = _write(archive, int(mb * 1e6))
    note.write_bytes(msgspec.json.encode(made))
    return made


def _write(directory: Location, size: int) -> Input:
    rng = np.random.default_rng(0)
    halves, distinct = _halves(rng)
    half_bytes = np.fromiter(map(len, halves), np.int64, len(halves))
    lines = max(BATCHES, int(size / (2 * half_bytes.mean() + 2)))
    writer = ArchiveWriter(
        directory, task="bench", batch_length_ms=BATCH_LENGTH_S * 1000, codec="columns", dead_letter=_refuse
    )
    made = Input(0, lines, 2 * lines * _WORDS_PER_HALF, 0, 0)
    used = np.zeros(len(halves), bool)
    for begin in range(0, lines, _COMMIT_ROWS):
        picks = rng.integers(0, len(halves), (min(_COMMIT_ROWS, lines - begin), 2))
        used[picks] = True
        made.bytes += int(half_bytes[picks].sum()) + 2 * len(picks)
        _commit(writer, halves, picks, begin, lines)
        replayed = max(1, int(len(picks) * _REPLAYED))
        _commit(writer, halves, picks[:replayed], begin, lines)
        made.replayed += replayed
    made.distinct_words = len(set(itertools.chain.from_iterable(distinct[used].tolist())))
    writer.progress(None)
    writer.close()
    return made


def _halves(rng: Any) -> tuple[list[str], Any]:
    """Some thousand halves of lines, and the numbers of their words."""
    words = [*dict.fromkeys(random_words(WORDS, seed=0))]
    weights = np.cumsum(1 / np.arange(1, len(words) + 1))
    picks = np.searchsorted(weights, rng.random((_HALVES, _WORDS_PER_HALF)) * weights[-1])
    return [" ".join([words[i] for i in row]) for row in picks.tolist()], picks


def _commit(writer: ArchiveWriter, halves: list[str], picks: Any, begin: int, lines: int) -> None:
    length_ms = BATCHES * BATCH_LENGTH_S * 1000
    for number, (a, b) in enumerate(picks.tolist(), begin):
        time_ms = BEGIN_S * 1000 + number * length_ms // lines
        writer.add(f"bench-{number}", time_ms, {"timestamp": time_ms / 1000, "text": f"{halves[a]} {halves[b]}"})
    writer.commit()


def _refuse(where: str, row: Any, reason: str) -> None:
    raise HeronError(f"{where}: {reason}")
