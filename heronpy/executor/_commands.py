"""Which processes a container has, and with which command each is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from heronpy.executor._stored_logs import STORE_S
from heronpy.host import INSTANCE_ENV, engine_process
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch

INSTANCE_STAGE = 0
CHECKPOINT_STAGE = 1
ENGINE_STAGE = 2
METRICS_STAGE = 3
SHELL_STAGE = 4
"""The last: as long as anything of the container runs, it can be asked about."""

_STAGES = 5
"""How many there are."""
LAST_CHECKPOINT_S = 5.0
"""So long a container that its cluster ends may wait for a checkpoint, if the topology takes any."""


def stop_limit_s(launch: Launch) -> float:
    """The longest that an executor takes to end: a checkpoint, the stop timeout for each stage, its log files' way into
    their store."""
    limit_s = _STAGES * launch.config.executor.stop_timeout_ms / 1000
    if launch.checkpoints:
        limit_s += LAST_CHECKPOINT_S
    return limit_s + STORE_S if launch.config.logging.upload_uri else limit_s


@dataclass(frozen=True, slots=True)
class Command:
    """One process of a container."""

    id: str
    """`tmaster`, `stmgr-<n>`, `metricsmgr-<n>`, `ckptmgr-<n>`, `heron-shell-<n>` or the instance id; names its
    log files."""
    argv: tuple[str, ...]
    stage: int = INSTANCE_STAGE
    """When it ends: lower ones first."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What is added to the executor's own environment."""


def process_table(launch: Launch, container: int, plan: PackingPlan) -> tuple[Command, ...]:
    """The processes of a container under a packing plan; none if the plan has no such container."""
    where = ("--dir", str(launch.dir), "--container", str(container))
    packed = plan.container(container)
    if container != 0 and packed is None:
        return ()
    # The engine's own processes compute nothing: a thread pool per core would only cost start-up time.
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    metricsmgr = Command(
        f"metricsmgr-{container}", engine_process("heronpy.metricsmgr", *where), METRICS_STAGE, one_thread
    )
    engine = [metricsmgr]
    if launch.checkpoints:
        engine.append(
            Command(f"ckptmgr-{container}", engine_process("heronpy.ckptmgr", *where), CHECKPOINT_STAGE, one_thread)
        )
    if launch.config.shell.enabled:
        engine.append(
            Command(f"heron-shell-{container}", engine_process("heronpy.shell", *where), SHELL_STAGE, one_thread)
        )
    if packed is None:
        return Command("tmaster", engine_process("heronpy.tmaster", *where), ENGINE_STAGE, one_thread), *engine
    stmgr = Command(packed.stmgr_id, engine_process("heronpy.stmgr", *where), ENGINE_STAGE, one_thread)
    # User code may use all cores for its linear algebra. But OpenBLAS, which numpy loads, lets a thread per core spin
    # for 2**28 cycles before it sleeps, at every start: 50 ms of CPU for each core but one.
    spin = os.environ.get("OPENBLAS_THREAD_TIMEOUT", "20")
    env = {"OPENBLAS_THREAD_TIMEOUT": spin, **(_large_tables() if launch.checkpoints else {})}
    code = plan.code_of(container)
    own = () if code is None else ("--code", code.version, *(f"--path={path}" for path in code.package_paths))
    instances = (
        Command(id, engine_process("heronpy.instance", *where, "--instance", id, *own), env={INSTANCE_ENV: id, **env})
        for id in (instance.instance_id(container) for instance in packed.instances)
    )
    return stmgr, *engine, *instances


def _large_tables() -> dict[str, str]:
    """Have the tables of large dicts in huge pages: one of ten million keys is freed in 1 ms instead of 42."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.hugetlb" in tunables:
        return {}
    return {"GLIBC_TUNABLES": ":".join(filter(None, (tunables, "glibc.malloc.hugetlb=1")))}
