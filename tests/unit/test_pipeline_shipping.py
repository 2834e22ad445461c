"""What executors on other machines are sent."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from heronpy.environment import pack_distributions
from heronpy.errors import UsageError
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


def without_tests() -> list[str]:
    """A worker has imported all of them, and to read what they import takes seconds."""
    tests = Path(__file__).parents[1]
    return [path for path in sys.path if not Path(path).is_relative_to(tests)]


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
    monkeypatch.setattr(sys, "path", [str(tmp_path), *without_tests()])
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


def names_in(archive: Path) -> set[str]:
    with tarfile.open(archive) as packed:
        return set(packed.getnames())


def test_secrets_and_what_is_hidden_stay_here(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    key = "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n"
    certificate = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
    files = {
        "__init__.py": "",
        "keys.py": f"KEY = {key!r}",
        "prices.csv": "1",
        "ca.pem": certificate,
        "LICENSE": "free",
        ".env": "PASSWORD=x",
        ".git/config": "url = https://user:token@host",
        ".aws/credentials": "x",
        "settings/.env.production": "PASSWORD=x",
        "settings/id_ed25519": "x",
        "settings/server.key": "x",
        "settings/store.p12": "x",
        "settings/both.pem": certificate + key,
        "settings/deploy": key,
        "venv/pyvenv.cfg": "",
        "venv/lib/x.py": "",
        "node_modules/x.js": "",
    }
    for name, text in files.items():
        path = shop / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (shop / ".#__init__.py").symlink_to("user@host.123:456")  # Emacs's lock, a link to nothing
    found = {name for name in names_in(pack_code({"shop": shop}, tmp_path)) if name.startswith("shop/")}
    expected = {"__init__.py", "keys.py", "prices.csv", "ca.pem", "LICENSE", "settings"}
    assert found == {f"shop/{name}" for name in expected}


def test_links_out_of_a_package_are_packed_as_files_or_refused_by_name(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").write_text("")
    (tmp_path / "large.csv").write_text("1,2")
    (shop / "prices.csv").symlink_to(tmp_path / "large.csv")
    with tarfile.open(pack_code({"shop": shop}, tmp_path)) as packed:
        member = packed.getmember("shop/prices.csv")
        assert (member.isfile(), member.size) == (True, 3)
    (tmp_path / "elsewhere").mkdir()
    (shop / "data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"shop/data cannot be packed: it is a link to a directory"):
        pack_code({"shop": shop}, tmp_path)
    (shop / "data").unlink()
    (shop / "data").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"shop/data cannot be packed: it is a link to nothing"):
        pack_code({"shop": shop}, tmp_path)


def test_modules_in_archives_on_the_path_go_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as parts:
        parts.writestr("wheels/__init__.py", "import bolts_of_it")
        parts.writestr("wheels/.env", "PASSWORD=x")
        parts.writestr("bolts_of_it.py", "")
        parts.writestr("counting.py", "not the script")
    (tmp_path / "counting.py").write_text("def words():\n    import wheels\n")
    (tmp_path / "broken.zip").write_text("no archive")
    first = [str(tmp_path / name) for name in ("", "broken.zip", "parts.zip")]
    monkeypatch.setattr(sys, "path", [*first, *without_tests()])
    importlib.invalidate_caches()
    main = type(sys)("__main__")
    main.__dict__.update(__file__=str(tmp_path / "counting.py"), __package__=None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    archive = pack_code(program_sources(), tmp_path)
    names = names_in(archive)
    assert {"wheels/__init__.py", "bolts_of_it.py", "counting.py"} <= names
    assert "wheels/.env" not in names
    with tarfile.open(archive) as packed:
        script = packed.extractfile("counting.py")
        assert script is not None
        assert b"import wheels" in script.read()
        assert packed.getnames().count("counting.py") == 1


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


def test_packages_are_packed_by_several_at_once_and_nothing_of_dead_ones_is_left(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    dead, busy = cache / ".heron-packages-0.tar.gz.1", cache / ".heron-packages-0.tar.gz.2"
    for path in (dead, busy):
        path.write_text("half")
    os.utime(dead, (1, 1))
    barrier = threading.Barrier(3)
    made: list[Path] = []

    def pack() -> None:
        barrier.wait()
        made.append(pack_distributions(cache, ["six", "yaml"]))

    threads = [threading.Thread(target=pack) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3
    (archive,) = set(made)
    assert any(name.startswith("yaml/") for name in names_in(archive))
    assert sorted(cache.iterdir()) == [busy, archive]


def test_packages_without_a_list_of_their_files_are_packed_by_their_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "dist-packages"
    for name, module, requires in (("plain", "plain_things", ""), ("other", "other_things", "Requires-Dist: plain\n")):
        info = place / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}")
        (info / "top_level.txt").write_text(f"{module}\n")
        (place / f"{module}.py").write_text("")
    (place / "third.py").write_text("")
    monkeypatch.syspath_prepend(place)
    archive = pack_distributions(tmp_path / "cache", ["other_things"])
    assert names_in(archive) == {"plain_things.py", "other_things.py"}
    (place / "plain-1.0.dist-info" / "top_level.txt").unlink()
    with pytest.raises(UsageError, match="plain cannot be packed: its installation has no list of its files"):
        pack_distributions(tmp_path / "cache2", ["other_things"])
