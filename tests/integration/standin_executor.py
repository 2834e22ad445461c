"""An executor with stand-ins for children (`standin_child.py`), which (mis)behave as their component's name says.

Run like `python -m heronpy.executor`, with the same arguments.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from heronpy.executor import Command, Executor
from heronpy.host import OWNER_ENV, HostProcess, engine_process
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch, log_to, main

CHILD = "standin_child"


def table(launch: Launch, container: int, plan: PackingPlan) -> list[Command]:
    if container == 0:
        return [_command(launch, "tmaster", "sleeps", 1)]
    packed = plan.container(container)
    if packed is None:
        return []
    return [
        _command(launch, f"stmgr-{container}", "sleeps", 1),
        _command(launch, f"metricsmgr-{container}", "sleeps", 2),
        *(_command(launch, i.instance_id(container), i.component, 0, packed.code) for i in packed.instances),
    ]


def _command(launch: Launch, id: str, behaviour: str, stage: int, code: str = "") -> Command:
    return Command(id, engine_process(CHILD, id, behaviour, str(launch.dir)), stage, {"STANDIN_CODE": code})


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--container", type=int)
    args = parser.parse_args()
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)  # the children are found by their module's name

    async def make() -> Executor:
        launch = Launch.load(args.dir)
        log_to(launch.make_log_dir(args.container) / "executor.log", launch.config.logging)
        owner = os.environ.get(OWNER_ENV)
        return Executor(launch, args.container, table=table, owner=HostProcess.parse(owner) if owner else None)

    main(make, name="executor")


if __name__ == "__main__":
    _main()
