"""The streamlet that counts words effectively once, in the simulator."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from heronpy.api import TopologyBuilder
from heronpy.examples import exactly_once_streamlet
from heronpy.testing import Simulator

TEXT = "The cow jumped over the moon.\nThe moon did not mind.\n" * 40


def simulated(text: Path, output: Path) -> Simulator:
    argv = ["Words", "--input", str(text), "--output", str(output), "--checkpoint-interval", "3600"]
    config, builder = exactly_once_streamlet.program(exactly_once_streamlet.arguments_of(argv))
    topology = TopologyBuilder("Words")
    builder.build(topology, config)
    return Simulator(topology)


def written(output: Path) -> list[tuple[str, int]]:
    return sorted((w, n) for file in output.glob("part-*") for w, n in map(json.loads, file.read_text().splitlines()))


def expected(text: str) -> list[tuple[str, int]]:
    counts = Counter(re.findall("[a-z]+", text.lower()))
    return sorted((word, n + 1) for word, count in counts.items() for n in range(count))


def test_each_word_is_counted_once_though_all_tasks_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.streamlet._spout.EMIT_LIMIT", 5)
    text, output = tmp_path / "text", tmp_path / "out"
    text.write_text(TEXT)
    with simulated(text, output) as simulator:

        def counted() -> int:
            simulator.checkpoint()
            return len(written(output))

        simulator.run(until=lambda: counted() > 20, seconds=300)
        simulator.step()
        simulator.restore()
        simulator.run(until=lambda: counted() >= len(expected(TEXT)), seconds=300)
    assert written(output) == expected(TEXT)
