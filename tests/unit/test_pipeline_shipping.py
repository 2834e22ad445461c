"""What executors on other machines are sent."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from heronpy.environment import pack_distributions
from heronpy.pipeline.shipping import NEEDED, pack_code, program_sources

ALONE = """
import sys
before = set(sys.modules)
from heronpy.archive import ArchiveSplit, ArchiveWriter, DeadLetters, merging
import heronpy.pipeline.rollup, heronpy.pipeline.duplicates, heronpy.pipeline.execute, heronpy.pipeline.outputs
import heronpy.pipeline.views, heronpy.pipeline.state_parts
import heronpy.connectors, heronpy.stores, heronpy.streamlet, heronpy.checkpoints, heronpy.filesystem
import pyarrow.parquet, cloudpickle
tops = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(*(name for name in tops if {"__path__", "__file__"} & vars(sys.modules[name]).keys()))
"""


def test_what_tasks_import_is_what_executors_are_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    optional = {"typing_extensions"}  # of msgspec
    found = {name for name in done.stdout.split() if not name.startswith("_sysconfigdata")}
    assert found - {"heronpy"} - optional == {name.partition(".")[0] for name in NEEDED}


def test_modules_that_are_imported_later_go_with_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counting.py").write_text("import splitting\n")
    (tmp_path / "splitting.py").write_text("def words():\n    import suffixes\n")
    (tmp_path / "suffixes.py").write_text("import json\nimport numpy\n")
    (tmp_path / "unused.py").write_text("")
    package = tmp_path / "shop"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "prices.csv").write_text("1")
    (package / "__pycache__" / "x.pyc").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    main = type(sys)("__main__")
    main.__dict__.update(__file__=str(tmp_path / "counting.py"), __package__=None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    for name in ("splitting", "shop"):
        monkeypatch.setitem(sys.modules, name, __import__(name))
    sources = program_sources()
    assert {name: sources[name] for name in ("counting.py", "splitting.py", "suffixes.py", "shop")} == {
        "counting.py": tmp_path / "counting.py",
        "splitting.py": tmp_path / "splitting.py",
        "suffixes.py": tmp_path / "suffixes.py",
        "shop": package,
    }
    assert not {"unused.py", "json", "numpy", "heronpy"} & sources.keys()
    archive = pack_code(sources, tmp_path)
    with tarfile.open(archive) as packed:
        names = set(packed.getnames())
    assert {"counting.py", "suffixes.py", "shop/prices.csv", "heronpy/pipeline/execute.py"} <= names
    assert not [name for name in names if "__pycache__" in name]
    assert {Path(name).suffix for name in names if name.startswith("heronpy/")} == {"", ".py"}
    assert pack_code(sources, tmp_path) == archive, "the same files have the same name: Spark sends them once"


def test_packages_go_with_what_they_require_and_are_packed_once(tmp_path: Path) -> None:
    archive = pack_distributions(tmp_path / "cache", ["yaml", "six", "nowhere", "rich"], without=["pygments"])
    with tarfile.open(archive) as packed:
        tops = {name.partition("/")[0] for name in packed.getnames()}
    assert {"yaml", "rich", "markdown_it", "mdurl"} <= tops
    assert not {"pygments", "heronpy", "numpy", "__pycache__"} & tops
    made_at = archive.stat().st_ino
    assert pack_distributions(tmp_path / "cache", ["rich", "yaml", "six"], without=["pygments"]) == archive
    assert archive.stat().st_ino == made_at
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
