"""Keys that one task may have and several could not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heronpy.api import Tuple
from tests.unit.snapshot_kit import Hand, Stored, numbers, plan_of


def counting(use: Callable[[Any, Any], None], *, counts: int = 1) -> Hand:
    """A task whose process() does this with its state and the number."""
    count = Hand(Stored(plan_of(counts)), 2)

    def process(tup: Tuple) -> None:
        use(count.user.counts, tup["number"])
        count.user.ack(tup)

    count.user.process = process
    return count


def undivided(count: Hand) -> str:
    assert count.task.core.states is not None
    return count.task.core.states.undivided


def increment(counts: Any, key: Any) -> None:
    counts[key] += 1


def test_keys_that_the_input_is_grouped_by_can_be_divided() -> None:
    count = counting(increment)
    for number in (1, 1, 2, "three", 4.0, None, ("a", 5)):
        count.task.offer(numbers([number]))
    assert undivided(count) == ""


@pytest.mark.parametrize(
    "use",
    [
        lambda counts, number: increment(counts, number + 1),
        lambda counts, number: counts.get("all"),
        lambda counts, number: counts.setdefault("all", []),
        lambda counts, number: "all" in counts,
    ],
    ids=["added to", "asked for", "put", "looked for"],
)
def test_another_key_is_named(use: Callable[[Any, Any], None], caplog: pytest.LogCaptureFixture) -> None:
    count = counting(use)
    count.task.offer(numbers([1, 5]))
    key = "2" if "all" not in undivided(count) else "'all'"
    why = f"state 'counts' with key {key}, and numbers:default is grouped by number"
    assert undivided(count) == why
    assert [r.getMessage() for r in caplog.records] == [f"{why}: several tasks would refuse this key"]


def test_a_task_may_look_at_all_that_it_has() -> None:
    count = counting(lambda counts, number: increment(counts, number) if number else counts.update(dict(counts)))
    count.task.offer(numbers([1, 2, 3, 0]))
    assert undivided(count) == ""


def test_one_wrong_key_among_the_first_thousand_is_found_and_what_comes_later_costs_nothing() -> None:
    count = counting(lambda counts, number: increment(counts, "wrong" if number == 999 else number))
    for start in range(0, 1000, 100):
        assert undivided(count) == ""
        count.task.offer(numbers(list(range(start, start + 100))))
    assert "'wrong'" in undivided(count)
    assert count.task._lone_keys is not None  # type: ignore[union-attr]  # it goes with the next batch
    count.task.offer(numbers([1]))
    assert count.task._lone_keys is None  # type: ignore[union-attr]


def test_several_tasks_refuse_it_themselves() -> None:
    count = counting(increment, counts=2)
    assert count.task._lone_keys is None  # type: ignore[union-attr]
