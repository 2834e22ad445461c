"""What processes do not import at their start, and when they look for garbage.

All of them start at every submit, and again after every death.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from topology_on_disk import launch_in
from user_programs import SCRIPT, write

from heronpy.host import engine_process
from heronpy.loader import define, stage
from heronpy.runtime import PARENT_ENV

OF_FEW = frozenset({"cloudpickle", "cryptography", "kazoo", "prometheus_client", "pyarrow", "rich", "typer", "yaml"})
"""For what few processes do, or do later: the module that needs one of them imports it there."""
ENGINE = {
    "heronpy.instance.__main__": OF_FEW,
    "heronpy.stmgr.__main__": OF_FEW | {"numpy"},
    "heronpy.tmaster.__main__": OF_FEW | {"numpy"},
    "heronpy.metricsmgr.__main__": OF_FEW | {"numpy"},
    "heronpy.shell.__main__": OF_FEW | {"numpy"},
    "heronpy.ckptmgr.__main__": OF_FEW | {"boto3", "numpy", "redis"},
    "heronpy.executor.__main__": OF_FEW | {"grpc", "numpy"},
    "heronpy.loader": OF_FEW | {"asyncio", "grpc", "numpy"},
    "heron_scheduler.service": OF_FEW | {"importlib.metadata", "numpy"},
    "heron_tracker": {"cloudpickle", "cryptography", "kazoo", "numpy", "pyarrow", "rich"},
}


@pytest.mark.parametrize("module", ENGINE)
def test_a_process_starts_without_the_libraries_that_it_may_never_need(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert not ENGINE[module] & set(loaded.split())


def test_a_command_that_asks_no_process_does_not_load_what_asks_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-m", "heronpy.cli", "topologies"],
        env={**os.environ, "HERON_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in loaded
    assert not {"cloudpickle", "cryptography", "grpc", "kazoo", "numpy", "uvicorn"} & loaded


PROBE = """
import asyncio, gc, json, sys
from heronpy.runtime import main
from heronpy.start import imports_done

imported = gc.isenabled()

class Probe:
    def __init__(self):
        self.started = asyncio.Event()
    async def run(self):
        print(json.dumps([__name__, sys.argv[1:], imported, gc.isenabled()]))

async def make():
    return Probe()

if __name__ == "__main__":
    if "--disable" in sys.argv:
        imports_done()
        gc.disable()
    main(make, name="probe")
"""


def probed(directory: Path, *args: str) -> list[object]:
    """The name of a module that was started, its arguments, and whether it looked for garbage before and in `main`."""
    (directory / "probe.py").write_text(PROBE)
    done = subprocess.run(
        engine_process("probe", *args),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[object] = json.loads(done.stdout)
    return found


def test_a_process_looks_for_garbage_when_it_has_imported_what_it_needs(tmp_path: Path) -> None:
    assert probed(tmp_path, "--dir", "D") == ["__main__", ["--dir", "D"], False, True]


def test_user_code_that_wants_no_garbage_looked_for_has_its_way(tmp_path: Path) -> None:
    assert probed(tmp_path, "--disable") == ["__main__", ["--disable"], False, False]


def test_a_users_script_is_imported_with_the_collector_on(tmp_path: Path) -> None:
    """It may take long, and make as much garbage as it likes."""
    found, launch = tmp_path / "found", launch_in(tmp_path)
    seen = f"\nif __name__ != '__main__':\n    import gc\n    open({str(found)!r}, 'w').write(str(gc.isenabled()))\n"
    write(tmp_path / "src", {"letters.py": SCRIPT + seen + "    raise SystemExit"})
    staged = stage(define(tmp_path / "src" / "letters.py", "-", ["Alphabet"]), launch.dir)
    dataclasses.replace(launch, package_paths=staged.package_paths, main_file=staged.main_file).save()
    where = ("--dir", str(launch.dir), "--container", "1", "--instance", "container_1_letters_1")
    environment = {**os.environ, PARENT_ENV: str(os.getpid())}
    ended = subprocess.run(
        engine_process("heronpy.instance", *where), env=environment, capture_output=True, text=True, check=False
    )
    assert "letters cannot be imported: SystemExit" in ended.stderr
    assert found.read_text() == "True"
