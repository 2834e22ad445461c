"""The commands of docs/pipeline.md, in their order: they end as the page says, and print what it shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.testing import eventually_sync

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.long, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(sh|text)\n(.*?)```", re.DOTALL)
OTHER = re.compile(r"\d[\d,]*\.\d+|\d+,\d{3}|\d{4}-\d\d-\d\d( \d\d:\d\d)?")
"""What differs from run to run: seconds, sizes, times."""


def plain(line: str) -> str:
    return " ".join(OTHER.sub("#", line).split())


class Shell:
    """Where the page's commands are typed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {**os.environ, "PATH": path, "HERON_HOME": str(directory / "home")}

    def run(self, command: str, code: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}"
        return done.stdout

    def all_is_archived(self) -> None:
        lines = sum(len(path.read_text().splitlines()) for path in self._directory.glob("lines-*.jsonl"))
        status = json.loads(self.run("heron pipeline status --json words.py 2>/dev/null"))
        (archive,) = status["archives"]
        assert archive["done"]["rows"] + archive["waiting"]["rows"] == lines
        assert archive["complete_before_ms"] is None, "its source has ended"


def test_the_pages_commands_print_what_it_shows(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (program,) = (block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "set_pipeline" in block)
    (tmp_path / "words.py").write_text(program)
    shutil.copy(ROOT / "docs/samples/lines-1.jsonl", tmp_path)
    shell, printed = Shell(tmp_path), ""
    try:
        for kind, text in BLOCK.findall((ROOT / "docs/pipeline.md").read_text()):
            if kind == "text":
                for line in map(plain, text.splitlines()):
                    assert line in printed, f"{line!r} is not in:\n{printed}"
                continue
            printed = ""
            for command in text.splitlines():
                code = re.search(r"# exit code (\d+)$", command)
                printed += "".join(
                    f"{plain(line)}\n" for line in shell.run(command, int(code[1]) if code else 0).splitlines()
                )
                if command.startswith("heron submit"):
                    eventually_sync(shell.all_is_archived, within_s=120)
    finally:
        shell.run("heron kill local Words || true")
