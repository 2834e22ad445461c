"""A process that writes an archive until it is killed: prints the last id of each commit when that has returned.

python archive_writing.py <directory> <task> <first>
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from heronpy.archive import ArchiveWriter


def main() -> None:
    directory, task, first = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

    def refuse(where: str, _row: object, reason: str) -> None:
        raise SystemExit(f"{where}: {reason}")

    writer = ArchiveWriter(directory, task=task, batch_length_ms=1000, codec="columns", dead_letter=refuse)
    for begin in itertools.count(first, 50):
        for index in range(begin, begin + 50):
            # each commit has a field of its own, so that the writers of a test change the schema at the same time
            writer.add(f"{task}-{index}", index * 20, {"n": index, f"f{begin // 50 % 40}": str(index)})
        writer.commit()
        writer.progress(begin * 20)
        print(begin + 50, flush=True)


if __name__ == "__main__":
    main()
