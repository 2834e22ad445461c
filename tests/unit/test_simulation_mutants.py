"""The simulator finds mistakes in the cores: each of those that are planted breaks a promise in the run of its seed."""

from __future__ import annotations

import pytest
from simulation_mutants import MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)
    assert mutant.failure != ""


@pytest.mark.parametrize("name", MUTANTS)
def test_without_the_mistake_nothing_is_found(name: str) -> None:
    assert MUTANTS[name].failure == ""
