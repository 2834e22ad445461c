"""Streamlet programs in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import streamlet_programs
from streamlet_programs import ELEMENTS, KEYS, WINDOW_S, windows, written

from heronpy.testing import LocalCluster, eventually_sync

FAST = {
    "heron.metrics.export.interval.ms": 500,
    "heron.executor.stop.timeout.ms": 2000,
    "heron.executor.stable.ms": 500,
}


def expected_sums() -> Counter[tuple[int, float]]:
    sums: Counter[tuple[int, float]] = Counter()
    for n in range(ELEMENTS):
        sums[n % KEYS, float(n * 100 // (WINDOW_S * 1000) * WINDOW_S)] += n
    return sums


def test_windows_are_exact_after_kill_9_of_the_instance_that_holds_them(tmp_path: Path) -> None:
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(windows(tmp_path), files=[streamlet_programs.__file__]).wait_running()

        def half() -> None:
            # The sources wait for `go`: the windows that are past are acked, and the last is held open.
            numbers = [i for i in topology.status().instances if i.component == "numbers"]
            past = ELEMENTS // 2 - WINDOW_S * 10
            acked = sum(count for i in numbers for name, count in i.totals.items() if name.startswith("__ack-count/"))
            assert acked == past

        eventually_sync(half)
        victim = next(id for id in sorted(topology.processes()) if "_sums_" in id)
        os.kill(topology.processes()[victim], signal.SIGKILL)
        (tmp_path / "go").touch()

        def complete() -> None:
            sums: Counter[tuple[int, float]] = Counter()
            for key, start, value in written(tmp_path, "sums"):
                sums[key, start] += value
            assert sums == expected_sums()

        eventually_sync(complete)
        # What is lost is sent again to all that read it: a count without windows has it twice, but never too little.
        last: defaultdict[int, int] = defaultdict(int)
        for key, count in written(tmp_path, "counts"):
            last[key] = max(last[key], count)
        assert all(last[n % KEYS] >= ELEMENTS // KEYS for n in range(KEYS))


# Written as users of Heron write them: everything at module level, with the imports of Heron's package.
WORD_COUNT = """
import sys
from heronpy.streamlet.builder import Builder
from heronpy.streamlet.runner import Runner
from heronpy.streamlet.config import Config
from heronpy.streamlet.windowconfig import WindowConfig
from heronpy.connectors.mock.arraylooper import ArrayLooper

class Line:
    def __init__(self, text):
        self.text = text

def words(line):
    assert isinstance(line, Line)
    return line.text.split()

if __name__ == '__main__':
    separator = ' '
    builder = Builder()
    builder.new_source(ArrayLooper(['Mary Had a little lamb', 'I Love You'], sleep=0.05)) \\
        .map(lambda text: Line(separator.join([text]))) \\
        .repartition(2) \\
        .flat_map(words) \\
        .map(lambda word: (word, 1)) \\
        .reduce_by_key_and_window(WindowConfig.create_tumbling_window(1), lambda x, y: x + y) \\
        .log()
    config = Config()
    Runner().run(sys.argv[1], config, builder)
"""
JOIN = """
import sys
from heronpy.streamlet.builder import Builder
from heronpy.streamlet.runner import Runner
from heronpy.streamlet.config import Config
from heronpy.streamlet.windowconfig import WindowConfig
from heronpy.connectors.mock.arraylooper import ArrayLooper

if __name__ == '__main__':
    builder = Builder()
    left = builder.new_source(ArrayLooper([["key1", "a"], ["key1", "b"]], sleep=0.05))
    right = builder.new_source(ArrayLooper([["key1", "c"], ["key1", "d"]], sleep=0.05))
    left.join(right, WindowConfig.create_sliding_window(2, 1), lambda x, y: x + y).log()
    config = Config()
    config.set_num_containers(2)
    Runner().run(sys.argv[1], config, builder)
"""
# A builder made by a function, its own runner, a generator with a setup, and a topology that is built by hand.
UNION = """
import itertools, sys, time
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.builder import Builder
from heronpy.streamlet.config import Config
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.runner import Runner

class Sleepy(Generator):
    def __init__(self, texts):
        super(Sleepy, self).__init__()
        self._texts = texts

    def setup(self, context):
        self._all = itertools.cycle(self._texts)

    def get(self):
        time.sleep(0.05)
        return next(self._all)

class OwnRunner(Runner):
    def __init__(self):
        super(OwnRunner, self).__init__()

    def run(self, name, config, builder):
        bldr = TopologyBuilder(name)
        builder.build(bldr)
        bldr.set_config(config._api_config)
        bldr.build_and_submit()

def word_count(name):
    builder = Builder()
    one = builder.new_source(Sleepy(["Humpy Dumpy sat on a wall"])).flat_map(lambda line: line.split())
    two = builder.new_source(Sleepy(["Here we go"])).flat_map(lambda line: line.split()).map(lambda word: (word, 1))
    one.map(lambda word: (word, 1)).union(two).log()
    OwnRunner().run(name, Config(), builder)

if __name__ == '__main__':
    word_count(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(WORD_COUNT, "KeyedWindow(key='lamb'", id="words"),
        pytest.param(JOIN, "KeyedWindow(key='key1'", id="join", marks=pytest.mark.long),
        pytest.param(UNION, "('Here', 1)", id="union", marks=pytest.mark.long),
    ],
)
def test_a_script_for_heron_runs_unchanged_in_processes_and_in_the_simulator(
    tmp_path: Path, script: str, said: str
) -> None:
    path = tmp_path / "program.py"
    path.write_text(script)
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(path, args=["Program"]).wait_running()

        def logged() -> None:
            logs = [topology.logs(id) for id in topology.processes() if id.startswith("container_")]
            assert any(said in log for log in logs)

        eventually_sync(logged)
    heron = Path(sys.executable).with_name("heron")
    process = subprocess.Popen(
        [heron, "submit", "--simulator", "local", path, "-", "Program"],
        env={**os.environ, "HERON_HOME": str(tmp_path / "home")},
        stdin=subprocess.DEVNULL,
        stdout=(tmp_path / "out").open("w"),
        stderr=subprocess.STDOUT,
    )
    try:

        def printed() -> None:
            assert said in (tmp_path / "out").read_text(), (tmp_path / "out").read_text()[-2000:]

        eventually_sync(printed)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(300)
