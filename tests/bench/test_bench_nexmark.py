"""Nexmark in real processes: right, also with kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_answers_are_right_in_real_processes_that_are_killed(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "heronpy.bench.nexmark", "q4", "q5", "--build", str(tmp_path), "--json"),
        *("--events", "200000", "--interval", "1", "--kill-every", "3", "--reliability", "effectively-once"),
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each["wrong"] for each in json.loads(done.stdout)] == ["", ""]


def test_an_unknown_query_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "heronpy.bench.nexmark", "q9"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    assert "q9" in done.stderr
