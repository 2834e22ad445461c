"""A topology's directory and its state manager entries as a submit leaves them, and processes of the engine on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from heronpy.config import EngineConfig
from heronpy.host import TOPOLOGY_ENV, engine_process, find_by_environment
from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.proto import state_pb2, topology_pb2
from heronpy.runtime import PARENT_ENV, Launch, StatemgrSpec
from heronpy.security import authority
from heronpy.statemgr import Kind, StateManager
from heronpy.testing import eventually_sync


def launch_in(
    directory: Path,
    keys: Mapping[str, Any] | None = None,
    *,
    statemgr: StatemgrSpec | None = None,
    checkpoints: str = "",
    topology_id: str = "words-1",
) -> Launch:
    """A topology directory, by default with a state manager in files beside it.

    A test that kills its topology needs an id of its own: a kill ends all processes that are marked with it.
    """
    launch = Launch(
        topology="words",
        topology_id=topology_id,
        cluster="local",
        role="tests",
        environ="default",
        statemgr=statemgr or StatemgrSpec(type="file", root=str(directory / "state")),
        dir=directory / "words",
        config=EngineConfig.from_keys(keys or {}),
        checkpoints=checkpoints,
    )
    launch.save()
    authority.create(launch.tls_dir, launch.topology_id, range(8), days=1)
    return launch


def execution_of(launch: Launch, *, submitted_s: int = 0) -> bytes:
    """What the state manager has of the submission; `submitted_s` is its time since the epoch."""
    return state_pb2.ExecutionState(
        topology=launch.topology,
        topology_id=launch.topology_id,
        cluster=launch.cluster,
        role=launch.role,
        environ=launch.environ,
        topology_dir=str(launch.dir),
        submission_time_s=submitted_s,
    ).SerializeToString()


def remove(directory: Path) -> None:
    """Remove a directory into which processes write meanwhile. For them it is gone at once."""
    shutil.rmtree(directory.rename(directory.with_name(f"{directory.name}.removed")))


def kill_all(topology_id: str) -> None:
    """Kill all processes of a topology until there are none: those that one look at them misses start others again."""

    def gone() -> None:
        found = list(find_by_environment({TOPOLOGY_ENV: topology_id}))
        for process, _ in found:
            process.send(signal.SIGKILL)
        assert not found

    eventually_sync(gone)


def packing_plan(*containers: int) -> PackingPlan:
    """One instance of component `word` in each container; its task id is the container's id."""
    resources = Resources(1.0, 1 << 20, 0)
    return PackingPlan(
        id="packing",
        containers=tuple(
            ContainerPacking(c, (InstancePacking("word", c, c - 1, resources),), resources) for c in containers
        ),
    )


def submit(sm: StateManager, *containers: int, mode: str = "ATMOST_ONCE", topology_id: str = "words-1") -> None:
    """What a submit writes before it starts containers."""
    topology = topology_pb2.Topology(id=topology_id, name="words", state=topology_pb2.RUNNING)
    spout = topology.spouts.add()
    spout.comp.name, spout.comp.class_name = "word", "words.Word"
    spout.comp.config.SetInParent()
    topology.topology_config.kvs.add(key="topology.reliability.mode", value=mode)
    out = spout.outputs.add()
    out.stream.id, out.stream.component_name = "default", "word"
    out.schema.keys.add(key="word", type=topology_pb2.OBJECT)
    sm.set(Kind.TOPOLOGIES, "words", topology.SerializeToString())
    sm.set(Kind.PACKINGPLANS, "words", packing_plan(*containers).to_proto().SerializeToString())


class EngineProcess:
    """`python -m heronpy.<name>`, killed at the end of the block if it still runs."""

    def __init__(self, name: str, launch: Launch, container: int) -> None:
        self._popen = subprocess.Popen(
            engine_process(f"heronpy.{name}", "--dir", str(launch.dir), "--container", str(container)),
            env={**os.environ, PARENT_ENV: str(os.getpid()), "HERON_TOPOLOGY_ID": launch.topology_id},
            stdin=subprocess.DEVNULL,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    def terminate(self, within_s: float = 300.0) -> int:
        """SIGTERM; the exit code."""
        self._popen.terminate()
        return self._popen.wait(within_s)

    def kill(self) -> None:
        """SIGKILL, and gone on return."""
        self._popen.kill()
        self._popen.wait(300)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
