"""Ends what a test run has left, however the run ended: interrupted, killed, or as it should.

Whatever a run starts is known in two ways: by the run's id in its environment, which its children inherit however deep,
and, for what is started without that environment, by a file with pid and start time of every direct child. A small
detached process waits until the run is over, gives clusters a moment to end by themselves, and kills the rest. A
number alone is never trusted: it may belong to a stranger by then.

Every pytest process, each worker of pytest-xdist too, is a run of its own. Run as a script, this file is the reaper.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

RUN_ENV = "HERON_TEST_RUN"
GRACE_S = 5.0
_POLL_S = 0.2
_KILL_S = 30.0


def _host() -> Any:
    """`heronpy.host`'s module of processes, alone: the package would bring all of gRPC into the reaper."""
    path = Path(__file__).parents[1] / "heronpy/host/_process.py"
    spec = importlib.util.spec_from_file_location("host_process", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


host = _host()


def start() -> str:
    """Begin a run: mark what this process starts from now on, and have it ended with this process. Returns its id."""
    run = uuid.uuid4().hex
    registry = Path(tempfile.gettempdir()) / f"heron-test-{run}.pids"
    registry.touch()
    subprocess.Popen(
        [sys.executable, "-S", "-P", __file__, str(host.HostProcess.of(os.getpid())), run, str(registry)],
        env={"PATH": os.environ.get("PATH", "")},  # it is no part of this run, nor of one around it
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.environ[RUN_ENV] = run
    _register_children(registry)
    return run


def _register_children(registry: Path) -> None:
    made = subprocess.Popen.__init__
    if hasattr(made, "registered"):
        return

    def init(self: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if child := host.HostProcess.of(self.pid):
            with registry.open("a") as f:
                f.write(f"{child}\n")

    init.registered = True  # type: ignore[attr-defined]
    subprocess.Popen.__init__ = init  # type: ignore[method-assign]


def left(run: str, registry: Path) -> set[Any]:
    """The processes of a run that are alive."""
    marked = {process for process, _ in host.find_by_environment({RUN_ENV: run})}
    lines = registry.read_text().split() if registry.exists() else []
    return marked | {process for line in lines if (process := host.HostProcess.parse(line)).alive}


def cgroup_parent(run: str) -> str:
    """Below which cgroup of each hierarchy a run makes its own."""
    return f"/heron-test-{run}"


def remove_cgroups(run: str) -> None:
    """Remove the empty cgroups of a run."""
    for parent in Path("/sys/fs/cgroup").glob(f"*{cgroup_parent(run)}"):
        for group in [*sorted(parent.glob("**/"), key=lambda path: -len(path.parts))]:
            with contextlib.suppress(OSError):
                group.rmdir()


def _reap(owner: Any, run: str, registry: Path) -> None:
    while owner.alive:
        time.sleep(_POLL_S)
    deadline_s = time.monotonic() + GRACE_S
    while left(run, registry) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    deadline_s = time.monotonic() + _KILL_S
    while (found := left(run, registry)) and time.monotonic() < deadline_s:
        for process in found:
            process.send(signal.SIGKILL)
        time.sleep(_POLL_S)
    remove_cgroups(run)
    registry.unlink(missing_ok=True)


if __name__ == "__main__":
    _reap(host.HostProcess.parse(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
