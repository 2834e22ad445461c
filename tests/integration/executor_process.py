"""The executor as a real process, with small real children: what its tests share."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from topology_on_disk import kill_all

from heronpy.config import EngineConfig, ExecutorConfig
from heronpy.host import (
    CONTAINER_ENV,
    PROCESS_ENV,
    TOPOLOGY_ENV,
    child_environment,
    find_by_environment,
    read_pids,
)
from heronpy.plan import CodeVersion, ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.security import authority
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually_sync

STANDIN = Path(__file__).with_name("standin_executor.py")
NOTHING = Resources(0, 0, 0)


def plan(*components: str, code: str = "") -> PackingPlan:
    instances = tuple(InstancePacking(name, task, 0, NOTHING) for task, name in enumerate(components, start=1))
    codes = (CodeVersion(code, (), b""),) if code else ()
    return PackingPlan("plan", (ContainerPacking(1, instances, NOTHING, code),), codes=codes)


class Container:
    """Container 1 of a topology, and its executor."""

    def __init__(self, launch: Launch, statemgr: StateManager) -> None:
        self.launch = launch
        self._statemgr = statemgr
        self._executors: list[subprocess.Popen[bytes]] = []

    def pack(self, *components: str, code: str = "") -> None:
        packing = plan(*components, code=code).to_proto()
        self._statemgr.set(Kind.PACKINGPLANS, self.launch.topology, packing.SerializeToString())

    def prepare(self, *components: str) -> None:
        value = plan(*components).to_proto().SerializeToString() if components else b""
        self._statemgr.set(Kind.NEXTPACKINGPLANS, self.launch.topology, value)

    def damage(self, kind: Kind) -> None:
        self._statemgr.set(kind, self.launch.topology, b"\xff\xfe not a record")

    def execute(self, number: int = 1, **env: str) -> subprocess.Popen[bytes]:
        self._executors.append(
            subprocess.Popen(
                [sys.executable, str(STANDIN), "--dir", str(self.launch.dir), "--container", str(number)],
                env=child_environment(self.launch, "executor", **{CONTAINER_ENV: str(number)}, **env),
            )
        )
        return self._executors[-1]

    def up(self, *ids: str, number: int = 1) -> dict[str, int]:
        """Wait until these processes run user code; their pids."""

        def check() -> dict[str, int]:
            pids = {id: record.pid for id, record in read_pids(self.launch.container_dir(number)).items()}
            for id in ids:
                up = self.launch.dir / f"{id}.up"
                assert up.exists(), f"{id} is not up:\n{self.log(number)}"
                assert up.read_text() == str(pids.get(id)), f"{id} is not up again"
            return {id: pids[id] for id in ids}

        return eventually_sync(check)

    def left(self) -> list[str]:
        found = find_by_environment({TOPOLOGY_ENV: self.launch.topology_id})
        return sorted(env[PROCESS_ENV] for _, env in found)

    def log(self, number: int = 1) -> str:
        path = self.launch.log_dir(number) / "executor.log"
        return path.read_text() if path.exists() else ""

    def ended(self) -> list[str]:
        path = self.launch.dir / "ended"
        return path.read_text().split() if path.exists() else []

    def close(self) -> None:
        for executor in self._executors:
            with contextlib.suppress(ProcessLookupError):
                executor.kill()
            executor.wait()
        kill_all(self.launch.topology_id)


@pytest.fixture
def stop_timeout_ms() -> int:
    """Long: whoever ends by itself does so, however late it gets to run."""
    return 60_000


@pytest.fixture
def container(tmp_path: Path, stop_timeout_ms: int) -> Iterator[Container]:
    launch = Launch(
        topology="words",
        topology_id=f"words-{uuid.uuid4().hex}",
        cluster="local",
        role="me",
        environ="default",
        statemgr=StatemgrSpec(root=str(tmp_path / "state")),
        dir=tmp_path / "words",
        config=EngineConfig(executor=ExecutorConfig(restart_backoff_ms=50, stop_timeout_ms=stop_timeout_ms)),
    )
    launch.save()
    authority.create(launch.tls_dir, launch.topology_id, range(8), days=1)
    statemgr = open_statemgr(launch.statemgr)
    made = Container(launch, statemgr)
    yield made
    made.close()
    statemgr.close()


def differs(found: object, other: object) -> None:
    assert found != other


def equal(found: object, expected: object) -> None:
    assert found == expected
