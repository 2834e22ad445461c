"""`heron viz --watch` outlives what is wrong around it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.testing import eventually_sync


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_file_that_cannot_be_written_is_said_once_and_tried_again(
    tmp_path: Path, signum: signal.Signals, code: int
) -> None:
    directory, errors = tmp_path / "targets", tmp_path / "errors"
    directory.touch()  # in its way
    file = directory / "heron.json"
    with errors.open("w") as stderr:
        command = subprocess.Popen(
            [sys.executable, "-m", "heronpy.cli", "viz", "--file-sd", str(file), "--watch"],
            env={**os.environ, "HERON_HOME": str(tmp_path / "home")},
            stderr=stderr,
        )
    try:
        eventually_sync(lambda: _equal(errors.read_text().count("\n"), 1))
        directory.unlink()
        eventually_sync(lambda: _equal(file.exists() and file.read_text(), "[]\n"))
        command.send_signal(signum)
        assert command.wait(300) == code
    finally:
        command.kill()
    first = errors.read_text().splitlines()[0]
    assert first == f"heron: {file.with_suffix('.ca.pem')} cannot be written: File exists; trying again"


def _equal(found: object, expected: object) -> None:
    assert found == expected
