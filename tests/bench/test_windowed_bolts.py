"""The script that measures windowed bolts runs."""

from __future__ import annotations

from windowed_bolts import measured


def test_windowed_bolts_are_measured() -> None:
    found = measured(5_000, 1)
    assert found["bytes with 1 % new elements, % of all"] < 20
    assert all(value > 0 for value in found.values())
