"""What Heron's example topologies show, with sources that end and results that must be exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from finite_topology import ALARM_EVERY, EVENTS, MESSAGES, NUMBERS, ROUNDS, WORDS, FiniteSources

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

pytestmark = pytest.mark.long  # test_metrics_topology.py counts in processes, test_cli_simulator.py groups by user code

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}


@pytest.fixture(scope="module")
def finite() -> Iterator[TopologyHandle]:
    with LocalCluster(FAST) as cluster:
        yield cluster.submit(FiniteSources).wait_running()


def totals(topology: TopologyHandle, component: str) -> list[dict[str, float]]:
    """The counters of each instance of a component, in the order of their tasks."""
    found = [i for i in topology.status().instances if i.component == component]
    return [dict(i.totals) for i in sorted(found, key=lambda i: i.task_id)]


def total(topology: TopologyHandle, component: str, counter: str) -> float:
    return sum(t.get(counter, 0) for t in totals(topology, component))


def ended(topology: TopologyHandle, spout: str, *, acked: float, failed: float = 0) -> None:
    """Wait until every root of a spout has ended, each once."""

    def check() -> None:
        assert total(topology, spout, "__ack-count/default") == acked
        assert total(topology, spout, "__fail-count/default") == failed
        assert total(topology, spout, "__emit-count/default") == acked + failed

    eventually_sync(check)
    assert total(topology, spout, "ended-twice") == 0
    assert total(topology, spout, "never-emitted") == 0


def test_word_count_is_exact_and_every_word_has_one_counter(finite: TopologyHandle) -> None:
    def check() -> None:
        counts: Counter[str] = Counter()
        for instance in totals(finite, "counts"):
            found = {name: n for name, n in instance.items() if name.startswith("word/") and n}
            assert not counts.keys() & found.keys()
            counts.update(found)
        assert counts == {f"word/{word}": 2 * ROUNDS for word in WORDS}

    eventually_sync(check)
    ended(finite, "words", acked=2 * ROUNDS * len(WORDS))


def test_global_metrics_need_no_context(finite: TopologyHandle) -> None:
    def check() -> None:
        assert total(finite, "counts", "__auto__/words") == 2 * ROUNDS * len(WORDS)

    eventually_sync(check)


def test_both_streams_reach_all_tasks_of_the_bolt(finite: TopologyHandle) -> None:
    alarms = range(0, EVENTS, ALARM_EVERY)

    def check() -> None:
        watchers = totals(finite, "watchers")
        assert len(watchers) == 2
        for watcher in watchers:
            assert watcher.get("__execute-count/events/default") == EVENTS
            assert watcher.get("__execute-count/events/alarms") == len(alarms)
            assert watcher.get("sum/default") == sum(range(EVENTS))
            assert watcher.get("sum/alarms") == sum(alarms)

        assert total(finite, "events", "__emit-count/alarms") == len(alarms)

    eventually_sync(check)
    ended(finite, "events", acked=EVENTS)


def test_a_custom_grouping_decides_who_gets_what(finite: TopologyHandle) -> None:
    tenths = NUMBERS // 10

    def check() -> None:
        chosen = totals(finite, "chosen")
        found = [{key: c.get(f"found/{key}", 0) for key in ("mine", "tenth", "strange")} for c in chosen]
        mine = [sum(n % 3 == index and n % 10 > 0 for n in range(NUMBERS)) for index in range(3)]
        assert found == [
            {"mine": mine[0], "tenth": tenths, "strange": 0},
            {"mine": mine[1], "tenth": tenths, "strange": 0},
            {"mine": mine[2], "tenth": 0, "strange": 0},
        ]

    eventually_sync(check)
    ended(finite, "numbers", acked=NUMBERS)  # a tree of two tuples is acked once


def test_half_of_the_tuples_fail_when_every_second_is_failed(finite: TopologyHandle) -> None:
    # Shuffle is exactly even, so each bolt has the same number, which is even.
    ended(finite, "messages", acked=MESSAGES, failed=MESSAGES)

    def check() -> None:
        assert total(finite, "halves", "__ack-count/messages/default") == MESSAGES
        assert total(finite, "halves", "__fail-count/messages/default") == MESSAGES
        assert [h.get("__execute-count/messages/default") for h in totals(finite, "halves")] == [MESSAGES, MESSAGES]

    eventually_sync(check)
