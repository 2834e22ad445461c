"""Sinks whose writer dies between prepare and commit, and is replaced an hour later.

The writer is a process that is killed. Its clock is an hour behind, and so are the times of its files: for those who
commits what it has prepared, an hour has passed.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import signal
import sqlite3
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from unittest import mock

from heronpy.connectors import CsvSink, JsonLinesSink, ParquetSink, Sink, SinkContext, SqlSink, TextSink
from heronpy.errors import UnavailableError

HOUR_S: Final = 3600
CHECKPOINTS: Final = 5
"""The third is the one that is committed an hour later."""
ELEMENTS: Final = 1000
"""Between two checkpoints."""
TABLE: Final = "counts"


def changed_outputs(lose: bool = False) -> Iterator[tuple[str, bool]]:
    """Each sink's name, and whether its output differs from that of a run without a failure.

    Args:
        lose: Forget what was prepared, as a mistake would.
    """
    for name, make, read in _sinks():
        with tempfile.TemporaryDirectory(prefix="heron-sinks-") as scratch:
            found = []
            for run in ("undisturbed", "killed"):
                directory = Path(scratch) / run
                directory.mkdir()
                sink = make(directory)
                if run == "undisturbed":
                    _write(sink, 1, range(CHECKPOINTS), commit_last=True)
                else:
                    prepared = _prepared_by_the_dead(sink, directory)
                    _write(sink, 2, range(3, CHECKPOINTS), commit_last=True, pending=() if lose else prepared)
                found.append(read(directory))
        yield name, found[0] != found[1]


def _write(
    sink: Sink, epoch: int, checkpoints: range, *, commit_last: bool, pending: tuple[Any, ...] = ()
) -> tuple[Any, ...]:
    """Write with a checkpoint after every few elements. Returns what is prepared and not committed."""
    writer = sink.open_transactional(
        SinkContext(name="sink", task_index=0, config={}, topology_id="bench-1", epoch=epoch)
    )
    writer.recover(list(pending))
    for checkpoint in checkpoints:
        for number in range(checkpoint * ELEMENTS, (checkpoint + 1) * ELEMENTS):
            writer.write({"key": f"key-{number}", "n": number})
        prepared = writer.prepare(checkpoint + 1)
        if checkpoint == checkpoints[-1] and not commit_last:
            return (prepared,)
        writer.commit(prepared)
    writer.close()
    return ()


def _prepared_by_the_dead(sink: Sink, directory: Path) -> tuple[Any, ...]:
    """What a process has prepared that was then killed, an hour ago."""
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        now, now_ns = time.time, time.time_ns
        try:
            with (
                mock.patch("time.time", side_effect=lambda: now() - HOUR_S),
                mock.patch("time.time_ns", side_effect=lambda: now_ns() - HOUR_S * 1_000_000_000),
                open(start, "wb") as pipe,
            ):
                pipe.write(pickle.dumps(_write(sink, 1, range(3), commit_last=False)))
                pipe.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:  # said here: nothing of the parent must go on in its copy
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(start)
    with open(end, "rb") as pipe:
        saved = pipe.read()
    os.waitpid(child, 0)
    if not saved:
        raise UnavailableError(f"{sink!r} could not be written")
    for path in directory.rglob("*"):
        found = path.stat()
        os.utime(path, (found.st_atime - HOUR_S, found.st_mtime - HOUR_S))
    prepared: tuple[Any, ...] = pickle.loads(saved)
    return prepared


def _sinks() -> Iterator[tuple[str, Callable[[Path], Sink], Callable[[Path], Any]]]:
    """Name, what makes the sink, and what reads what it has committed."""
    yield "JsonLinesSink", JsonLinesSink, _committed
    yield "TextSink", TextSink, _committed
    yield "CsvSink", lambda path: CsvSink(path, ["key", "n"]), _committed
    if importlib.util.find_spec("pyarrow"):
        yield "ParquetSink", ParquetSink, _committed
    if importlib.util.find_spec("sqlalchemy"):
        yield "SqlSink (SQLite)", _table, _rows


def _committed(directory: Path) -> list[tuple[int, bytes]]:
    """Bytes of the files that readers see, by checkpoint."""
    files = ((re.fullmatch(r"part-0-(\d+)-.*", path.name), path) for path in directory.iterdir() if path.is_file())
    return sorted((int(match[1]), path.read_bytes()) for match, path in files if match)


def _table(directory: Path) -> Sink:
    with closing(sqlite3.connect(directory / "db")) as database:
        database.execute(f"CREATE TABLE {TABLE} (key TEXT, n INTEGER)")
        database.commit()
    return SqlSink(f"sqlite:///{directory}/db", TABLE)


def _rows(directory: Path) -> list[Any]:
    with closing(sqlite3.connect(directory / "db")) as database:
        return database.execute(f"SELECT key, n FROM {TABLE} ORDER BY rowid").fetchall()
