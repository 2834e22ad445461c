"""Which ids are in an archive twice: found by a column of 64-bit hashes, before anything else is read.

At-least-once delivery replays after a failure, so duplicates are rare and come in bursts. Only int64s are read and
shuffled for this (8 bytes per element): numpy sorts them. Elements whose hash occurs once are unique and need no more;
the others, *candidates*, are compared by their real ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heronpy.errors import HeronError, NotFoundError
from heronpy.filesystem import Location
from heronpy.pipeline.execute import collected
from heronpy.pipeline.task_errors import sendable_errors

if TYPE_CHECKING:
    from pyspark import SparkContext

_TASK_BYTES = 512 * 1024 * 1024
_TASK_BYTES_LEAST = 4 * 1024 * 1024
"""Of files: a task reads about a tenth of them."""
_HASHES_PER_PARTITION = 8_000_000


def find_duplicate_candidates(
    sc: SparkContext, files: Sequence[tuple[Location, int]], parallelism: int
) -> tuple[np.ndarray[Any, Any], set[Location], set[Location], int]:
    """Hashes of ids that occur more than once, sorted; the files that they are in; those that are damaged; and how many
    rows there are.

    Of damaged files the rest is read: a reader of their elements must find the same damage, else some count twice.

    Args:
        sc: Spark.
        files: path and bytes of each.
        parallelism: tasks that run at once.
    """
    total = sum(size for _, size in files)
    tasks = _tasks(files, min(_TASK_BYTES, max(_TASK_BYTES_LEAST, total // parallelism)))
    count = max(1, min(total // 16 // _HASHES_PER_PARTITION + 1, 1000))
    found = collected(
        sc.parallelize(tasks, max(1, len(tasks)))
        .mapPartitions(_Hashes(count))
        .partitionBy(count, int)
        .mapPartitions(_repeated)
    )
    paths = [path for path, _ in files]
    damaged = {paths[i] for _, _, numbers, _ in found for i in numbers}
    hashes = np.frombuffer(b"".join(data for data, _, _, _ in found), dtype=np.int64)
    holding = {paths[i] for _, numbers, _, _ in found for i in numbers}
    return np.sort(hashes), holding, damaged, sum(rows for _, _, _, rows in found)


def _tasks(files: Sequence[tuple[Location, int]], target_bytes: int) -> list[list[tuple[int, Location]]]:
    tasks: list[list[tuple[int, Location]]] = [[]]
    filled = 0
    for number, (path, size) in enumerate(files):
        if filled + size > target_bytes and tasks[-1]:
            tasks.append([])
            filled = 0
        tasks[-1].append((number, path))
        filled += size
    return tasks


class _Hashes:
    """Reads the hashes of files: (partition, (number of the file, int64s)); no bytes at all for a damaged file."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, tasks: Iterable[list[tuple[int, Location]]]) -> Iterator[tuple[int, tuple[int, bytes]]]:
        with sendable_errors():
            yield from self._of(tasks)

    def _of(self, tasks: Iterable[list[tuple[int, Location]]]) -> Iterator[tuple[int, tuple[int, bytes]]]:
        for files in tasks:
            for number, path in files:
                for hashes in file_hashes(path):
                    if hashes is None:
                        yield 0, (number, b"")
                        continue
                    if self._count == 1:
                        yield 0, (number, hashes.tobytes())
                        continue
                    places = hashes.view(np.uint64) % self._count
                    for p in np.unique(places).tolist():
                        yield p, (number, hashes[places == p].tobytes())


def file_hashes(path: Location) -> Iterator[np.ndarray[Any, Any] | None]:
    """The hashes of a file's ids, by row group; None for what is damaged.

    Raises:
        NotFoundError: the file is gone.
        HeronError: the disk cannot be read, or there is not enough memory. Passed over, events would count twice.
    """
    from heronpy.archive import UnreadableError, id_hash_groups

    try:
        yield from id_hash_groups(path)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} is gone: the archive was compacted meanwhile; run again") from error
    except OSError as error:
        raise HeronError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise HeronError(f"not enough memory to read the ids of {path}: {error}") from error
    except UnreadableError:
        yield None  # the whole file


def _repeated(rows: Iterable[tuple[int, tuple[int, bytes]]]) -> Iterator[tuple[bytes, list[int], list[int], int]]:
    numbers: list[int] = []
    arrays: list[np.ndarray[Any, Any]] = []
    damaged: set[int] = set()
    for _, (number, data) in rows:
        if data:
            numbers.append(number)
            arrays.append(np.frombuffer(data, dtype=np.int64))
        else:
            damaged.add(number)
    ordered = np.sort(np.concatenate(arrays)) if arrays else np.empty(0, dtype=np.int64)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    holding: set[int] = set()
    if len(repeated):
        holding = {n for n, array in zip(numbers, arrays, strict=True) if np.isin(array, repeated).any()}
    yield repeated.tobytes(), sorted(holding), sorted(damaged), len(ordered)
