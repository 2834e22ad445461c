"""Simulated connections: in order, bounded, and lost when they break."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.testing.simulation import End, Loop, Network, Process


class World:
    """Two processes with one connection, each on a host of its own."""

    def __init__(self, seed: int = 0) -> None:
        self.loop = Loop(seed)
        self.network = Network(self.loop, delay_s=0.05)
        self.near, self.far = Process(self.loop, "near", 1), Process(self.loop, "far", 1)
        self.got: list[bytes] = []
        self.written = 0
        self.lost: list[str] = []
        self.ends: list[End] = []
        self.network.listen("far:1", "b", self.far, self._accept)
        self.network.dial(self.near, "a", "far:1", self._opened, lambda: None, "near")
        self.run(0.1)

    def _accept(self, end: End, name: str) -> None:
        assert name == "near"
        end.start(self.got.append, lambda: self.lost.append("far"))
        self.ends.append(end)

    def _opened(self, end: End) -> None:
        end.start(lambda _: None, lambda: self.lost.append("near"))
        self.ends.insert(0, end)

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.now_s + seconds)

    def write_all(self, messages: list[bytes]) -> None:
        """Write one after the other, each when there is room."""
        waiting = list(messages)

        def next_one() -> None:
            self.written += 1
            if waiting:
                self.ends[0].write(waiting.pop(0), next_one)

        self.ends[0].write(waiting.pop(0), next_one)


@given(st.lists(st.binary(min_size=1), min_size=1), st.integers(0, 1000))
def test_messages_arrive_in_order(messages: list[bytes], seed: int) -> None:
    world = World(seed)
    world.write_all(messages)
    world.run(100)
    assert world.got == messages


def test_a_cut_link_delivers_when_it_heals() -> None:
    world = World()
    world.network.cut("a", "b")
    world.write_all([b"one", b"two"])
    world.run(5)
    assert world.got == []
    world.network.heal("a", "b")
    world.run(1)
    assert world.got == [b"one", b"two"]
    assert world.lost == []


def test_a_link_that_is_cut_for_long_is_lost_for_both_sides() -> None:
    world = World()
    world.network.cut("b", "a")
    world.run(60)
    world.network.heal("b", "a")
    world.run(1)
    assert sorted(world.lost) == ["far", "near"]


def test_a_writer_waits_while_its_reader_reads_nothing() -> None:
    world = World()
    world.ends[1].hold_reads()
    world.write_all([bytes(20_000)] * 10)
    world.run(1)
    assert world.written < 10
    world.ends[1].resume_reads()
    world.run(1)
    assert len(world.got) == 10


def test_what_is_on_its_way_to_a_dead_process_is_lost() -> None:
    world = World()
    world.write_all([b"one"])
    world.far.die()
    world.run(1)
    assert world.got == []
    assert world.lost == ["near"]


def test_a_stopped_process_goes_on_where_it_was() -> None:
    world = World()
    world.far.stop()
    world.write_all([b"one", b"two"])
    world.run(3)
    assert world.got == []
    world.far.resume()
    world.run(1)
    assert world.got == [b"one", b"two"]
