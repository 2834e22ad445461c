"""The script that measures what a rescale reads runs."""

from __future__ import annotations

from rescaled_reads import measured


def test_what_a_rescale_reads_is_measured() -> None:
    found = measured(5_000, 2, 3)
    assert found["merged: read, times the checkpoint"] <= found["as written: read, times the checkpoint"]
    assert found["as written: bytes a key"] < 64
