"""The user's modules go with a topology that was built in this process, also if only pickled objects name them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.stores import StoreContext
from heronpy.testing import LocalCluster, eventually_sync

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}

SOURCES = """
from shapes import Element
from heronpy.connectors import Record, Source, SourceReader

class Numbers(Source):
    timed = True
    def open(self, context):
        return Reader()

class Reader(SourceReader):
    at = 0
    def read(self, limit):
        self.at += 1
        return [Record(Element(self.at - 1), 0, str(self.at))] if self.at <= 10 else []
    @property
    def ended(self):
        return self.at >= 10
"""
SHAPES = """
class Element:
    def __init__(self, n):
        self.n = n
"""
FUNCTIONS = """
def doubled(element):
    import late
    return late.twice(element.n)
"""
LATE = """
def twice(n):
    return 2 * n
"""
MONOIDS = """
from heronpy.streamlet.monoid import Monoid

class Sum(Monoid):
    def lift(self, value):
        return value
    def merge(self, a, b):
        return a + b

def parity(element):
    return {"even" if element % 4 == 0 else "odd": element}
"""
SINKS = """
from pathlib import Path
from heronpy.connectors import Sink, SinkWriter

class Lines(Sink):
    def __init__(self, path):
        self.path = path
    def open(self, context):
        return Writer(self.path)

class Writer(SinkWriter):
    def __init__(self, path):
        self.path = path
    def write(self, element):
        with Path(self.path).open("a") as file:
            print(element, file=file)
    def flush(self):
        pass
"""
OPERATORS = """
from heronpy.streamlet.transformoperator import TransformOperator

class Plus(TransformOperator):
    def setup(self, context):
        self.context = context
    def transform(self, tup):
        self.context.emit([tup.values[0] + 1])
"""
STORES = """
from heronpy.stores import SqliteStore

class Mine(SqliteStore):
    pass
"""
MODULES = {
    "sources": SOURCES,
    "shapes": SHAPES,
    "functions": FUNCTIONS,
    "late": LATE,
    "monoids": MONOIDS,
    "sinks": SINKS,
    "operators": OPERATORS,
    "stores": STORES,
}
BUILD = """
from pathlib import Path
from mine import functions, monoids, operators, sinks, sources, stores
from heronpy.api import TopologyBuilder
from heronpy.streamlet import Builder, Config, MonoidOf

def view():
    return MonoidOf(even=monoids.Sum(), odd=monoids.Sum())

def topology(directory):
    builder = Builder()
    doubled = builder.new_source(sources.Numbers()).map(functions.doubled)
    doubled.map(lambda n: ("all", monoids.parity(n))).to_store("sums", view(), stores.Mine())
    doubled.transform(operators.Plus()).to_sink(sinks.Lines(directory / "lines"))
    config = Config()
    config.set_pipeline(directory / "job")
    made = TopologyBuilder("modules")
    builder.build(made, config)
    return made
"""


def check_outputs(directory: Path) -> None:
    path = directory / "lines"
    assert path.exists(), "the sink has not been opened yet"
    lines = path.read_text().split()
    assert sorted(map(int, lines)) == [2 * n + 1 for n in range(10)]


def test_modules_of_functions_and_classes_that_are_only_pickled_go_with_the_topology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, elsewhere = tmp_path / "library", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (library / "mine").mkdir(parents=True)
    for name, text in MODULES.items():
        alone = name in ("shapes", "late")  # of modules that only other modules import
        (library / ("" if alone else "mine") / f"{name}.py").write_text(text)
    (library / "program.py").write_text(BUILD)
    monkeypatch.syspath_prepend(library)
    monkeypatch.chdir(elsewhere)
    try:
        program = __import__("program")
        with LocalCluster(FAST) as cluster:
            topology = cluster.submit(program.topology(tmp_path)).wait_running()
            shipped = {path.name for path in (topology.launch.dir / "package").iterdir()}
            assert shipped >= {"mine", "shapes.py", "late.py", "program.py"}
            eventually_sync(lambda: check_outputs(tmp_path))

            def stored() -> None:
                context = StoreContext(view="sums", monoid=program.view(), directory=tmp_path / "job")
                with contextlib.closing(program.stores.Mine().reader(context)) as reader:
                    assert reader.get("all") == {"even": 40, "odd": 50}

            eventually_sync(stored)
    finally:
        for name in ("program", "mine", *MODULES):
            for module in [m for m in sys.modules if m.partition(".")[0] == name]:
                del sys.modules[module]


SCRIPT = """
import contextlib
import subprocess
import sys
from pathlib import Path
from heronpy.api import TopologyBuilder
from heronpy.connectors import ListSource
from heronpy.streamlet import Builder
from heronpy.stores import StoreContext
from heronpy.testing import LocalCluster, eventually_sync

def twice(n):
    import late
    return late.twice(n) + 1

if __name__ == "__main__":
    from sinks import Lines
    lines = Path(sys.argv[1])
    builder = Builder()
    builder.new_source(ListSource(range(10))).map(twice).to_sink(Lines(lines))
    topology = TopologyBuilder("script")
    builder.build(topology)
    with LocalCluster() as cluster:
        running = cluster.submit(topology).wait_running()
        def complete():
            assert lines.exists() and len(lines.read_text().split()) >= 10
        eventually_sync(complete)
"""


@pytest.mark.long  # as above, where modules are imported late, too; test_loader.py has scripts
def test_what_a_script_s_functions_import_when_they_are_called_goes_with_its_topology(tmp_path: Path) -> None:
    library, elsewhere = tmp_path / "library", tmp_path / "elsewhere"
    for directory in (library, elsewhere):
        directory.mkdir()
    for name in ("late", "sinks"):
        (library / f"{name}.py").write_text(MODULES[name])
    (library / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, library / "script.py", tmp_path / "lines"],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    check_outputs(tmp_path)
