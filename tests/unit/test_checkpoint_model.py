"""The checkpoint protocol keeps its promises in a model whose processes die between any two steps."""

from __future__ import annotations

import pytest
from checkpoint_model import FAULTS, FAULTY_STEPS, Fault, failure_of
from checkpoint_mutants import MUTANTS
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES: st.SearchStrategy[list[Fault]] = st.lists(
    st.tuples(st.integers(0, FAULTY_STEPS), st.sampled_from(FAULTS), st.integers(0, 9999)), max_size=8
)


@settings(max_examples=35, deadline=None)
@given(SEEDS, SCHEDULES)
def test_effectively_once_equals_the_run_without_faults(seed: int, faults: list[Fault]) -> None:
    assert failure_of(seed, faults) == ""


@settings(max_examples=12, deadline=None)
@given(SEEDS, SCHEDULES)
def test_at_least_once_acks_nothing_that_a_restore_would_undo(seed: int, faults: list[Fault]) -> None:
    assert failure_of(seed, faults, at_least_once=True) == ""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)
    assert failure_of(mutant.seed, at_least_once=mutant.at_least_once) != ""


@pytest.mark.parametrize("name", MUTANTS)
def test_without_the_mistake_nothing_is_found(name: str) -> None:
    assert failure_of(MUTANTS[name].seed, at_least_once=MUTANTS[name].at_least_once) == ""


def test_what_comes_over_a_back_edge_is_not_acked_with_the_checkpoint_that_has_it_in_a_log() -> None:
    """The head of a cycle took its snapshot without waiting for a spout whose tuples come over the back edge only."""
    assert failure_of(4825, [], at_least_once=True) == ""
