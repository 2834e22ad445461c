"""State, checkpoints and hashing are for every process: what is heavy is imported by those who use it."""

from __future__ import annotations

import subprocess
import sys


def imported_with(modules: str, heavy: tuple[str, ...]) -> str:
    program = f"import sys, {modules}; print([name for name in {heavy!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_state_and_checkpoints_import_no_event_loop_and_no_client() -> None:
    heavy = ("asyncio", "grpc", "boto3", "redis", "heronpy.instance", "heronpy.streamlet", "heronpy.api")
    assert imported_with("heronpy.state, heronpy.checkpoints", heavy) == "[]"


def test_an_executor_imports_no_numpy() -> None:
    assert imported_with("heronpy.executor", ("numpy", "heronpy.checkpoints")) == "[]"


def test_an_instance_without_checkpoints_imports_nothing_of_them() -> None:
    heavy = ("heronpy.checkpoints", "heronpy.ckptmgr.client", "heronpy.state", "heronpy.instance._checkpointed")
    assert imported_with("heronpy.instance.process", heavy) == "[]"
