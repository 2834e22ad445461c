"""A batch job for executors elsewhere: a script with modules beside it, its archive in S3, and what it must count."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from heronpy.archive import ArchiveWriter
from heronpy.filesystem import location
from heronpy.pipeline import ViewReader
from heronpy.streamlet import Sum
from heronpy.testing.servers import S3Server

BATCHES = 6
PER_BATCH = 400
PROGRAM = '''
import os
import sys
import time

from heronpy.connectors import ListSource
from heronpy.stores import SqliteStore
from heronpy.streamlet import Builder, Config, Runner, Sum
from splitting import words_of


class Line:
    """Archived by pickling: whoever reads it imports this script."""

    def __init__(self, text):
        self.text = text


def counted(word):
    if os.path.exists("/tmp/hold"):
        open("/tmp/held", "w").close()
        while os.path.exists("/tmp/hold"):
            time.sleep(0.05)
    return word, 1


if __name__ == "__main__":
    builder = Builder()
    lines = builder.new_source(ListSource(["none"])).archive(codec="pickle")
    lines.flat_map(words_of).map(counted).to_store("counts", Sum(), SqliteStore(sys.argv[2]))
    config = Config()
    config.set_pipeline(sys.argv[1], batch_length=10)
    Runner().run("Counting", config, builder)
'''
BESIDE = """
def words_of(line):
    import suffixes  # imported only where it runs

    return [word + suffixes.SUFFIX for word in line.text.split()]
"""


class SparkPlace(Protocol):
    """Where executors run."""

    s3: S3Server

    def conf(self, python: str, **more: str) -> list[str]:
        """Options of a `heron pipeline` command that runs there."""
        ...


class Place:
    """A script, its archive in S3, and commands with a home of their own."""

    _numbers = itertools.count()

    def __init__(self, cluster: SparkPlace, root: Path) -> None:
        self.cluster, self.root = cluster, root
        self.url = location("it", cluster.s3.url("jobs")) / f"job{next(self._numbers)}"
        (root / "counting.py").write_text(PROGRAM)
        (root / "splitting.py").write_text(BESIDE)
        (root / "suffixes.py").write_text('SUFFIX = "!"\n')

    def fill(self) -> dict[int, dict[str, int]]:
        """Archive lines, some twice, in several files; what is to be counted of them."""
        expected: dict[int, dict[str, int]] = {}
        for batch in range(BATCHES):
            words = Counter(f"w{n % 7}!" for n in range(PER_BATCH)) + Counter({"all!": PER_BATCH})
            expected[batch] = dict(words)
            for task, numbers in (("a", range(PER_BATCH)), ("b", range(0, PER_BATCH, 10))):
                writer = ArchiveWriter(
                    self.url / "archive" / "events",
                    task=f"{task}-{batch}",
                    batch_length_ms=10_000,
                    codec="pickle",
                    dead_letter=_no_letter,
                )
                for n in numbers:
                    writer.add(f"{batch}-{n}", batch * 10_000 + n, LINE(f"w{n % 7} all"))
                writer.commit()
                writer.close()
        return expected

    def start(self, python: Path | str, *options: str, url: str | None = None, **conf: str) -> subprocess.Popen[str]:
        """`heron pipeline run` on the cluster; executors run that Python."""
        where = self.cluster.conf(str(python), **conf)
        return self._start("run", "--json", "--until", str(BATCHES * 10), *where, *options, url=url)

    def recompute_here(self) -> tuple[int, str, str]:
        """All batches again, by `heron pipeline backfill` on this machine."""
        return ended(
            self._start("backfill", "--json", "--from", "0", "--to", str(BATCHES * 10), "--master", "local[1]")
        )

    def _start(self, *words: str, url: str | None = None) -> subprocess.Popen[str]:
        program = ["counting.py", url or self.url.url, str(self.root / "live")]
        return subprocess.Popen(
            [sys.executable, "-c", "from heronpy.cli import main; main()", "pipeline", *words, *program],
            cwd=self.root,
            env={**os.environ, "HERON_HOME": str(self.root / "home"), "XDG_CACHE_HOME": str(self.root)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, python: Path | str, *options: str, **conf: str) -> tuple[int, str, str]:
        """The same to its end: exit code, standard output and error."""
        return ended(self.start(python, *options, **conf))

    def counts(self) -> dict[int, dict[str, int]]:
        """What is in the view."""
        reader = ViewReader(self.url, "counts", Sum())
        return {batch: dict(reader.items(batch)) for batch in reader.batches()}


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    return process.returncode, out, err


def _no_letter(where: str, row: Any, reason: str) -> None:
    raise AssertionError((where, row, reason))


def _line() -> Any:
    """The class of the script, as a topology's instance would pickle it."""
    module = ModuleType("counting")
    exec("class Line:\n    def __init__(self, text):\n        self.text = text\n", module.__dict__)
    sys.modules["counting"] = module
    return module.Line


LINE = _line()
