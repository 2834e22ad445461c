"""Other numbers of tasks in the simulated cluster: counts are exact in every checkpoint and at the end."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.testing.simulation import Kill, Restore, Scale, Schedule, StateAway, StateEmptied, failure_of, run
from heronpy.tmaster import Checkpointing
from heronpy.tmaster.checkpoints import CheckpointCoordinator


def tasks_of(cluster: Any, component: str) -> int:
    return int(cluster.packing.parallelism[component])


def test_counts_are_exact_through_two_to_three_to_eight_to_one() -> None:
    faults = [(2.0, Scale("sink", 3)), (5.0, Scale("sink", 8)), (9.0, Scale("sink", 1))]
    cluster = run(6, faults, check_every=10, checkpoints=True)
    assert tasks_of(cluster, "sink") == 1
    assert cluster.storage.rescaled >= 3 + 8 + 1
    assert cluster.storage.read_ahead >= 8


@pytest.mark.parametrize(("component", "to"), [("relay", 1), ("sink", 4)])
@pytest.mark.parametrize("after_s", [0.01, 0.1, 0.2, 0.35, 0.5])
def test_counts_are_exact_though_the_topology_master_dies_in_the_middle(
    component: str, to: int, after_s: float
) -> None:
    faults: Schedule = [(3.0, Scale(component, to)), (3.0 + after_s, Kill("tmaster-0", 0.2))]
    assert tasks_of(run(6, faults, check_every=10, checkpoints=True), component) == to


@pytest.mark.parametrize(
    "faults",
    [
        [(3.0, Scale("sink", 4)), (3.3, Kill("container_1", 1.0)), (3.4, Kill("container_2", 1.0))],
        [(3.0, Scale("relay", 1)), (3.1, StateAway(3.0)), (3.2, Kill("tmaster-0", 0.1))],
        [(3.0, Scale("relay", 3)), (3.3, StateEmptied()), (3.4, Kill("stmgr-1", 0.5))],
        [(3.0, Scale("sink", 1)), (3.05, Restore()), (3.1, Scale("relay", 4)), (3.3, Restore())],
        [(3.0, Scale("sink", 3)), (3.2, Scale("sink", 1)), (3.3, Kill("tmaster-0", 0.1)), (4.0, Scale("sink", 2))],
    ],
)
def test_counts_are_exact_after(faults: Schedule) -> None:
    assert run(6, faults, check_every=10, checkpoints=True).storage.newest > 0


def test_orders_that_reach_stream_managers_before_the_plan_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Checkpointing.advance
    early = lambda self, state, now_s, *, published, **others: advance(  # noqa: E731
        self, state, now_s, published=True, **others
    )
    assert not _fails(16)
    monkeypatch.setattr(Checkpointing, "advance", early)
    assert _fails(16, 79, 98, 141)


def test_a_commit_of_batches_that_cannot_be_divided_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored = property(lambda self: False, lambda self, value: None)
    numbers = [("sink", 3), ("relay", 3), ("sink", 1), ("relay", 1), ("sink", 4), ("relay", 2)]
    scaled: Schedule = [(2.0 + 2.5 * n, Scale(component, to)) for n, (component, to) in enumerate(numbers)]
    assert not failure_of(10, scaled, check_every=50, checkpoints=True)
    monkeypatch.setattr(CheckpointCoordinator, "divisible", ignored, raising=False)
    assert failure_of(10, scaled, check_every=50, checkpoints=True)


def _fails(*seeds: int) -> bool:
    """Whether a promise is broken in the run of one of these seeds."""
    return any(failure_of(seed, check_every=50, checkpoints=True) for seed in seeds)
