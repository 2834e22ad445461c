"""Watermarks of a source that reads several splits in turn: none gets ahead of the split that is furthest behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from heronpy.api import TopologyBuilder
from heronpy.connectors import Record, Source, SourceContext, SourceReader, SplitReader, StreamSplit
from heronpy.instance.task import SpoutTask
from heronpy.streamlet import Builder, Config, WindowConfig
from heronpy.testing import Simulator
from heronpy.windows import END, NEVER, Clock, SplitClocks

FAST_MS, SLOW_MS = 60_000, 5_000
"""The newest time in each split."""


class Reader(SplitReader):
    """Has an element every second, and gives out so many at a time."""

    read_up_to: ClassVar[dict[str, int]] = {}

    def __init__(self, name: str, at_a_time: int, newest_ms: int, position: int | None) -> None:
        self._name, self._at_a_time, self._newest_ms = name, at_a_time, newest_ms
        self._position = position or 0

    def read(self, limit: int) -> Sequence[Record]:
        records = []
        for _ in range(self._at_a_time):
            if self._position < self._newest_ms:
                self._position += 1000
                records.append(Record(self._name, self._position, f"{self._name}{self._position}"))
        self.read_up_to[self._name] = self._position
        return records

    @property
    def position(self) -> Any:
        return self._position


@dataclasses.dataclass(frozen=True)
class Split:
    name: str

    def open(self, position: Any, context: SourceContext) -> SplitReader:
        if self.name == "fast":
            return Reader("fast", 20, FAST_MS, position)
        return Reader("slow", 1, SLOW_MS, position)


class TwoSpeeds(Source):
    timed, rewindable, interleaved = True, True, True

    def open(self, context: SourceContext) -> SourceReader:
        raise NotImplementedError

    def stream_splits(self) -> Mapping[str, StreamSplit]:
        return {name: Split(name) for name in ("fast", "slow")}


def simulated(idle_s: float) -> Simulator:
    builder, topology, config = Builder(), TopologyBuilder("program"), Config()
    source = builder.new_source(TwoSpeeds()).set_name("source")
    source.count_by_key_and_window(WindowConfig(5, 5), str).set_name("counts").log()
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    config.set_max_lateness(0)
    config.set_idle_timeout(idle_s)
    builder.build(topology, config)
    Reader.read_up_to.clear()
    return Simulator(topology)


def watermark(simulator: Simulator) -> int:
    return max(bolt.upstream.low for bolt in simulator.component("counts"))


def test_a_watermark_waits_for_the_split_that_is_furthest_behind() -> None:
    with simulated(idle_s=3600) as simulator:

        def behind() -> bool:
            assert watermark(simulator) <= Reader.read_up_to.get("slow", 0)
            return watermark(simulator) == SLOW_MS

        simulator.run(until=behind, seconds=300)
        assert behind()
        assert Reader.read_up_to["fast"] == FAST_MS
        simulator.run(seconds=0.2)
        assert behind()


def test_a_split_without_elements_holds_up_no_watermark_for_long() -> None:
    with simulated(idle_s=0.5) as simulator:
        simulator.run(until=lambda: watermark(simulator) == END, seconds=300)
        assert watermark(simulator) == END


def test_a_source_that_is_not_asked_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backpressure and a deactivated topology hold spouts."""
    now_ms = 1_000_000
    for module in ("_bolts", "_spout", "_task", "_window_bolts"):
        monkeypatch.setattr(f"heronpy.streamlet.{module}.now_ms", lambda: now_ms)
    with simulated(idle_s=60) as simulator:

        def steps(count: int) -> None:
            nonlocal now_ms
            for _ in range(count):
                now_ms += 20
                simulator.step()

        steps(100)
        assert watermark(simulator) == SLOW_MS
        (spout,) = (task for task in simulator.tasks.values() if isinstance(task, SpoutTask))
        for _ in range(3):
            spout.hold(True)
            now_ms += 100_000
            steps(20)
            assert watermark(simulator) == SLOW_MS
            spout.hold(False)
            steps(100)
            assert watermark(simulator) == SLOW_MS
        now_ms += 500  # from here on it is asked, and silent
        for _ in range(70):
            now_ms += 980
            steps(1)
        assert watermark(simulator) == END


IDLE_MS = 60_000


def clocks(*splits: str) -> SplitClocks:
    made = SplitClocks(lambda: Clock(0, IDLE_MS, 0))
    assert made.watermark(splits, 0) == NEVER
    return made


def gives(made: SplitClocks, split: str, time_ms: int) -> None:
    """A read has returned records of a split."""
    made.read(split)
    for _ in range(2):
        made.of(split).observe(time_ms)
    made.of(split).fresh = True


def test_a_split_whose_turn_has_not_come_is_not_idle() -> None:
    """A slow topology takes longer than the idle time to go once through all splits."""
    made, splits = clocks("a", "b", "c"), ("a", "b", "c")
    for turn in range(1, 30):
        now_ms, split = turn * 40_000, splits[turn % 3]
        gives(made, split, turn if split == "c" else 1_000_000)
        if turn > 3:
            assert made.watermark(splits, now_ms) < 100, "that of the split that is furthest behind"


def test_a_split_that_was_asked_in_vain_for_so_long_is_idle() -> None:
    made, splits = clocks("a", "b", "c"), ("a", "b", "c")
    for split in splits:
        gives(made, split, 5 if split == "c" else 1000)
    assert made.watermark(splits, 0) == 5
    for turn in range(2, 12):
        gives(made, splits[turn % 2], 2000)
        low = made.watermark(splits, turn * 10_000)
        assert low == (5 if turn < 9 else 2000), "asked in vain since 30 s"
    for seconds in (111, 130, 170, 172):
        made.read(None)
        low = made.watermark(splits, seconds * 1000)
    assert low == END, "nobody has anything"
