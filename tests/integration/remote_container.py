"""Container 1 of a topology on "another host": a directory that the submitter's launch file does not name."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, HostProcess, PidFiles
from heronpy.proto import state_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, StateManager, container_node

INSTANCE = "container_1_word_1"
PROGRAM = """
import asyncio, sys
from pathlib import Path
from heronpy.config import LoggingConfig
from heronpy.runtime import log_to, main

class Sleeper:
    def __init__(self):
        self.started = asyncio.Event()
    async def run(self):
        self.started.set()
        print("ready", flush=True)
        await asyncio.get_running_loop().create_future()

log_to(Path(sys.argv[1]), LoggingConfig())

async def make():
    return Sleeper()

main(make, name="instance")
"""


def on_another_host(submitted: Launch, directory: Path) -> Launch:
    """The topology's directory where container 1 runs, with what a container has there."""
    directory.mkdir(parents=True)
    launch = dataclasses.replace(submitted, dir=directory / submitted.topology)
    launch.save(submitted.token())
    launch.tls_dir.mkdir(mode=0o700)
    for name in ("ca.pem", "container-1.pem"):
        shutil.copy(submitted.tls_dir / name, launch.tls_dir / name)
    launch.make_log_dir(1)
    return launch


def enter(state: StateManager, launch: Launch, *, endpoint: str = "", incarnation: int = 1) -> None:
    """Write the container's record, as its executor and its heron-shell do."""
    record = state_pb2.ContainerRecord(
        topology_id=launch.topology_id,
        container=1,
        incarnation=incarnation,
        host="far-host",
        shell_endpoint=endpoint,
        started_s=int(time.time()),
    )
    state.set(Kind.CONTAINERS, container_node(launch.topology, 1), record.SerializeToString())


@contextlib.contextmanager
def live_instance(launch: Launch) -> Iterator[int]:
    """A process of the container that answers signals as an instance does; its pid."""
    log_file = launch.log_dir(1) / f"{INSTANCE}.log"
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(log_file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, TOPOLOGY_ENV: launch.topology_id, PROCESS_ENV: INSTANCE},
    )
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            found = HostProcess.of(child.pid)
            assert found is not None
            PidFiles(launch.container_dir(1)).started(INSTANCE, found)
            yield child.pid
        finally:
            child.kill()
