"""What processes do not import at their start. All of them start at every submit, and again after every death."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.host import engine_process

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

imported = gc.isenabled()

class Probe:
    def __init__(self):
        self.started = asyncio.Event()
    async def run(self):
        print(json.dumps([__name__, sys.argv[1:], imported, gc.isenabled()]))

async def make():
    return Probe()

if __name__ == "__main__":
    main(make, name="probe")
"""


def test_a_process_looks_for_garbage_when_it_has_imported_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    done = subprocess.run(
        engine_process("probe", "--dir", "D"),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["__main__", ["--dir", "D"], False, True]
