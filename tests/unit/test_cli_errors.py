"""What the command line says to somebody who errs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.archive import require_arrow
from heronpy.errors import ConfigError, nearest
from heronpy.stores import RedisStore

SCRIPT = """
import argparse
argparse.ArgumentParser(description="counts words").parse_args()
"""


TICKS = """
from heronpy.api import Spout, Topology


class Ticking(Spout):
    outputs = ["tick"]

    def next_tuple(self): ...


class Ticks(Topology):
    ticks = Ticking.spec()
"""


def heron(*args: str, home: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HERON_HOME": str(home), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "heronpy.cli", *args], env=env, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_heron_home_that_is_a_file_is_an_error_and_not_an_empty_list(tmp_path: Path, below: str) -> None:
    (tmp_path / "home").write_text("")
    done = heron("topologies", home=tmp_path / "home" / below)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "cannot be a directory" in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_that_is_meant_for_the_script_is_the_scripts_and_no_error(tmp_path: Path) -> None:
    script = tmp_path / "words.py"
    script.write_text(SCRIPT)
    done = heron("submit", "local", str(script), "-", "--help", home=tmp_path / "home")
    assert "counts words" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    without = heron("submit", "local", str(script), "-", home=tmp_path / "home")
    assert without.returncode == 2
    assert "defined no topology" in without.stderr


def test_an_empty_place_of_a_checkpoint_does_not_mean_none(tmp_path: Path) -> None:
    script = tmp_path / "ticks.py"
    script.write_text(TICKS)
    done = heron("submit", "--dry-run", "--from", "", "local", str(script), "Ticks", home=tmp_path / "home")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "heron: the place of a checkpoint is empty: name a URL or a path\n"


def test_an_interrupt_while_modules_are_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from heronpy.cli import main; main('version')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_what_a_locale_cannot_write_is_replaced() -> None:
    code = "import sys; from heronpy.cli import run; run(['version']); print('2 \u2192 3')"
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "2 ? 3", "")


def test_summaries_of_commands_are_not_cut(tmp_path: Path) -> None:
    assert "..." not in heron("--help", home=tmp_path).stdout.partition("Commands:")[2]


def test_only_a_near_name_is_suggested() -> None:
    assert nearest("Nope", ["Shop"]) == ""
    assert nearest("Shpo", ["Shop"]) == "; did you mean 'Shop'?"
    assert nearest("wrods", ["words"]) == "; did you mean 'words'?"


def test_what_an_archive_needs_is_found_out_where_the_program_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    _missing(monkeypatch, "pyarrow")
    with pytest.raises(ConfigError, match=r"needs pyarrow: pip install 'heron-engine\[spark\]'"):
        require_arrow("archive_1")


def test_what_a_redis_store_needs_is_found_out_where_the_program_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    _missing(monkeypatch, "redis")
    with pytest.raises(ConfigError, match=r"needs redis: pip install 'heron-engine\[redis\]'"):
        RedisStore("redis://127.0.0.1:1/0")


def _missing(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
