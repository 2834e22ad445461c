"""When an unreachable Topology Master is probed, and which numbers are served meanwhile."""

from __future__ import annotations

import pytest
from heron_tracker.parts import INTERVALS_MAX, PROBE_S, CircuitBreaker, Numbers, Remembered

from heronpy.proto import state_pb2

HERE = state_pb2.TmasterLocation(host="here", port=1, pid=7)
AGAIN = state_pb2.TmasterLocation(host="here", port=1, pid=8)


@pytest.fixture
def failing() -> CircuitBreaker:
    """Unreachable since 1000, as of 0 of the monotonic clock."""
    breaker = CircuitBreaker()
    breaker.located(HERE)
    breaker.failed(HERE, "no answer in time", 0.0, 1000.0)
    return breaker


def test_one_at_a_time_tries_an_unreachable_one_and_about_once_a_second(failing: CircuitBreaker) -> None:
    assert failing.open
    assert not failing.may_probe(PROBE_S / 2)
    assert failing.may_probe(PROBE_S)
    failing.probing = True
    assert not failing.may_probe(100 * PROBE_S)
    failing.probing = False
    failing.failed(HERE, "refused", 5.0, 1005.0)
    assert (failing.since_s, failing.why) == (1000.0, "refused")
    assert not failing.may_probe(5.0 + PROBE_S / 2)


def test_an_answer_closes_the_circuit(failing: CircuitBreaker) -> None:
    failing.answered()
    assert not failing.open
    assert not failing.may_probe(100.0)


def test_a_new_process_or_one_whose_node_is_back_starts_afresh(failing: CircuitBreaker) -> None:
    failing.located(HERE)
    assert failing.open
    failing.located(None)
    assert failing.open  # gone alone is no answer
    failing.located(HERE)
    assert not failing.open
    failing.failed(HERE, "no answer in time", 9.0, 1009.0)
    failing.located(AGAIN)
    assert not failing.open


def test_a_late_failure_at_an_old_address_says_nothing_about_the_new_one(failing: CircuitBreaker) -> None:
    failing.located(AGAIN)
    failing.failed(HERE, "no answer in time", 5.0, 1005.0)
    assert not failing.open


def numbers(instances: int, at_s: float = 0.0) -> Numbers[int]:
    return Numbers({f"instance-{n}": n for n in range(instances)}, 600, at_s)


def test_the_last_numbers_are_remembered_by_topology_and_interval() -> None:
    remembered = Remembered[int]()
    remembered.add("words", 600, numbers(2, at_s=1.0))
    remembered.add("words", 600, numbers(2, at_s=2.0))
    remembered.add("words", -1, numbers(2, at_s=3.0))
    found = remembered.get("words", 600)
    assert found is not None
    assert found.at_s == 2.0
    assert remembered.get("words", 3600) is None
    assert remembered.get("others", 600) is None
    remembered.keep(["others"])
    assert remembered.get("words", 600) is None


def test_numbers_that_were_measured_longest_ago_make_room() -> None:
    remembered = Remembered[int](instances_max=10)
    for topology in ("a", "b", "c"):
        remembered.add(topology, 600, numbers(4))
    assert [remembered.get(topology, 600) is not None for topology in "abc"] == [False, True, True]
    remembered.add("huge", 600, numbers(50))
    assert [remembered.get(topology, 600) is not None for topology in ("b", "c", "huge")] == [False, False, True]
    remembered.add("a", 600, numbers(4))
    assert [remembered.get(topology, 600) is not None for topology in ("huge", "a")] == [False, True]


def test_an_asker_of_many_intervals_keeps_only_the_last_of_them() -> None:
    remembered = Remembered[int]()
    for interval in range(1, 3 * INTERVALS_MAX):
        remembered.add("words", interval, numbers(1))
    known = [i for i in range(1, 3 * INTERVALS_MAX) if remembered.get("words", i) is not None]
    assert known == list(range(2 * INTERVALS_MAX, 3 * INTERVALS_MAX))
