"""The units in deploy/systemd: systemd understands them, and the commands in them are ones that there are."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[2] / "deploy/systemd").glob("*.service"))
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")


def command_of(unit: Path) -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    return shlex.split(line)


@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="no systemd-analyze: install Debian's package systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/heron/bin/", f"{Path(sys.executable).parent}/"))
    assert SYSTEMD_ANALYZE is not None
    done = subprocess.run([SYSTEMD_ANALYZE, "verify", "--man=no", here], capture_output=True, text=True, timeout=60)
    assert [line for line in done.stderr.splitlines() if unit.name.split("@")[0] in line] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_units_command_knows_its_options(unit: Path) -> None:
    program, *words = command_of(unit)
    assert program in ("/opt/heron/bin/heron", "/opt/heron/bin/python")
    end = next(n for n, word in enumerate(words) if word.startswith("--"))
    command = [*(["-m", "heronpy.cli"] if program.endswith("heron") else []), *words[:end]]
    done = subprocess.run([sys.executable, *command, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    known = set(re.findall(r"--[a-z][a-z-]*", done.stdout))
    assert {word for word in words if word.startswith("--")} <= known
