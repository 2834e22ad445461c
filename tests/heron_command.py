"""The command `heron`, a process for each call, forked from one that has imported what commands need.

To start Python and import gRPC takes a quarter of a second of CPU, six times what the rest of a short command takes,
and the suite runs hundreds of them. What is of the start itself (its imports, an interrupt at any moment, a reader that
goes away) is for tests that start `python -m heronpy.cli`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from heronpy.cli import run

# It has no thread, and so is safe to be forked, and ends with this process.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["heronpy.cli.parts", "heronpy.pipeline.cli", "cryptography.x509", "rich.table"])


def heron_command(
    *words: str, home: Path, cwd: Path | None = None, timeout_s: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with this HERON_HOME, and more of the environment. Raises `TimeoutExpired` after `timeout_s`."""
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        full = {**os.environ, **environment, "HERON_HOME": str(home)}
        process = _server.Process(target=_command, args=(words, full, cwd, out.name, err.name))
        process.start()
        try:
            process.join(timeout_s)
            if process.exitcode is None:
                raise subprocess.TimeoutExpired(words, timeout_s, out.read(), err.read())
            return subprocess.CompletedProcess(words, process.exitcode, out.read(), err.read())
        finally:
            process.kill()
            process.join()


def _command(words: Sequence[str], environment: dict[str, str], cwd: Path | None, out: str, err: str) -> None:
    if cwd is not None:
        os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for path, fd in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY), fd)
    sys.exit(run(words))
