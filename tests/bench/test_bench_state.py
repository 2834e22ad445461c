"""The benchmark of state with tiny inputs: it runs, and what does not depend on the machine meets its target."""

from __future__ import annotations

import json

import pytest

from heronpy.bench import state
from heronpy.bench.state_costs import LOOP_MS, STOP_MS_MAX, measure


def test_a_task_is_measured() -> None:
    found = measure(20_000)
    assert found.dirty_bytes <= state.DIRTY_BYTES_MAX
    assert found.stop_ms > 0
    assert found.stop_at
    assert found.steps > 5
    assert (found.long_steps > 0) == (found.stop_ms > STOP_MS_MAX)
    assert found.loop_ms > LOOP_MS / 4
    assert found.write_ns > 0
    assert found.restore_ns > 0


def test_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    state.main(keys=[1_000], rounds=0)
    assert "longest stop" in capsys.readouterr().out
    state.main(keys=[1_000], rounds=0, as_json=True)
    assert json.loads(capsys.readouterr().out)["costs"][0]["keys"] == 1_000
