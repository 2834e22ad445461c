"""The script that measures state runs."""

from __future__ import annotations

from keyed_state import measured


def test_state_is_measured() -> None:
    found = measured(2_000, 1)
    assert found["bytes at 1 % dirty keys, % of all"] < 30
    assert all(value > 0 for value in found.values())
