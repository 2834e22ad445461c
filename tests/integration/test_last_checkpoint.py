"""What a sink has not committed yet is committed by the checkpoint before a kill. With real processes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from heronpy import submit
from heronpy.api import Grouping, TopologyBuilder
from heronpy.connectors import JsonLinesSink, SinkBolt, SourceSpout, TextFile
from heronpy.testing import LocalCluster, eventually_sync

LINES = 500
FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}


@pytest.mark.long
def test_a_kill_commits_all_that_was_emitted_exactly_once(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"line {n}\n" for n in range(LINES)))
    builder = TopologyBuilder("copying")
    lines = builder.add_spout("lines", SourceSpout(TextFile(tmp_path / "in.txt")), 1)
    sink = SinkBolt(JsonLinesSink(tmp_path / "out"), field="value")
    builder.add_bolt("copies", sink, 2, {lines: Grouping.SHUFFLE})
    mode = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}
    builder.set_config({**mode, "topology.stateful.checkpoint.interval.seconds": 1000, "topology.stmgrs": 1})

    def out() -> Counter[str]:
        files = (tmp_path / "out").glob("part-*.jsonl")
        return Counter(json.loads(line) for file in files for line in file.read_text().splitlines())

    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(builder).wait_running()

        def executed() -> None:
            instances = topology.status().instances
            assert sum(i.totals["__execute-count/lines/default"] for i in instances if i.component == "copies") >= LINES

        eventually_sync(executed)
        assert not out(), "nothing is committed before a checkpoint"
        submit.kill(topology.launch, final_s=60.0)
        assert out() == Counter(f"line {n}" for n in range(LINES))
