"""The sampling profiler of a process: it finds what computes, costs little, and is bounded."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from heronpy.runtime import Profiler
from heronpy.testing import eventually_sync


def computing() -> None:
    # For longer than five ms: so long the interpreter's lock is kept, and nobody is seen who has it for less.
    sum(n * n for n in range(1_000_000))


def waiting(stop: threading.Event) -> None:
    stop.wait(0.05)


@contextmanager
def running(work: Callable[[threading.Event], None], name: str = "work") -> Iterator[None]:
    """Have a thread do something again and again."""
    stop = threading.Event()

    def again() -> None:
        while not stop.is_set():
            work(stop)

    thread = threading.Thread(target=again, name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(300)


def profiled(profiler: Profiler, enough: Callable[[], None]) -> dict[str, Any]:
    """The profile of this process until a check passes."""
    stop = threading.Event()
    thread = threading.Thread(target=profiler.run, args=(stop,))
    thread.start()
    try:
        eventually_sync(enough)
    finally:
        stop.set()
        thread.join(300)
    assert not thread.is_alive()
    return profiler.profile()


def functions(profile: dict[str, Any], thread: str, weight: str) -> Counter[str]:
    """Weights by function, itself or what it calls."""
    found: Counter[str] = Counter()
    for stack in profile["stacks"]:
        if stack["thread"] == thread:
            for name in {profile["frames"][n]["function"] for n in stack["frames"]}:
                found[name] += stack[weight]
    return found


def samples(profiler: Profiler, at_least: int) -> Callable[[], None]:
    def enough() -> None:
        assert profiler.samples >= at_least

    return enough


def test_cpu_time_goes_to_what_computes_and_samples_to_what_waits_too() -> None:
    def work(stop: threading.Event) -> None:
        computing()
        waiting(stop)

    profiler = Profiler()
    with running(work):
        profile = profiled(profiler, samples(profiler, 200))
    cpu, seen = functions(profile, "work", "cpu_ns"), functions(profile, "work", "samples")
    assert cpu["computing"] > 2 * cpu["waiting"]
    assert seen["waiting"] > 0
    frames = [frame for frame in profile["frames"] if frame["function"] == "computing"]
    assert {frame["file"] for frame in frames} == {__file__}
    assert computing.__code__.co_firstlineno < frames[0]["line"] <= computing.__code__.co_firstlineno + 2


def test_the_profiler_tells_what_it_costs_and_looks_less_often_where_that_is_much() -> None:
    profiler = Profiler(10_000)
    with running(lambda _stop: computing()):
        profile = profiled(profiler, samples(profiler, 300))
    assert 0 < profile["cost_cpu_s"] / profile["seconds"] < 0.04
    assert profile["samples"] / profile["seconds"] < 5000
    assert "profiler" not in {stack["thread"] for stack in profile["stacks"]}, "its own thread is not in it"


def nested(depth: int, stop: threading.Event) -> None:
    if depth:
        nested(depth - 1, stop)
    else:
        stop.wait(0.001)


def test_deep_and_many_stacks_are_bounded() -> None:
    depths = iter(range(100, 100_000))
    profiler = Profiler(1000, stacks_max=20)

    def dropped() -> None:
        assert profiler.profile()["dropped"] > 0

    with running(lambda stop: nested(next(depths) % 150 + 1, stop)):
        profile = profiled(profiler, dropped)
    assert len(profile["stacks"]) <= 20
    assert max(len(stack["frames"]) for stack in profile["stacks"]) <= 100


def test_threads_that_come_and_go_meanwhile_do_no_harm() -> None:
    def short_lived(_stop: threading.Event) -> None:
        threads = [threading.Thread(target=time.sleep, args=(0.0001,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    profiler = Profiler(1000)
    with running(short_lived):
        profile = profiled(profiler, samples(profiler, 100))
    assert "work" in {stack["thread"] for stack in profile["stacks"]}


def test_a_profiler_that_nobody_stops_ends_by_itself() -> None:
    profiler = Profiler(1000, seconds_max=0.05)
    thread = threading.Thread(target=profiler.run, args=(threading.Event(),))
    thread.start()
    thread.join(300)
    assert not thread.is_alive()
