"""The task of a container, as Spark's Python workers run it. Needs nothing there but the standard library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# What is secret goes through a pipe. The label is for those who look at the host's processes.
_BOOT = """\
import json, sys
order = json.loads(sys.stdin.buffer.readline())
scope = {"__name__": "heron_supervisor"}
exec(compile(order.pop("program"), "heron_supervisor", "exec"), scope)
scope["main"](order)
"""


def container_task(order: dict[str, Any], label: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for `mapPartitions`, which yields how the container ended. Pickled by value, being a closure.

    Args:
        order: For `_supervise`, with that file's text as `program`.
        label: What the supervisor is called in the host's list of processes.
    """
    boot = _BOOT

    def run(_: Iterator[Any]) -> Iterator[Any]:
        import json
        import subprocess
        import sys

        child = subprocess.Popen(
            [sys.executable, "-I", "-c", boot, label],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Spark signals its Python workers' process group; and it ends by its stdin
        )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(order).encode() + b"\n")
        child.stdin.flush()
        said = child.stdout.read()
        child.wait()
        if not said.strip():
            raise RuntimeError(f"the supervisor of {label} ended with {child.returncode}")
        yield json.loads(said)

    return run
