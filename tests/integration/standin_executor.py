"""An executor with stand-ins for children: tiny real processes that (mis)behave as their component's name says.

Run like `python -m heronpy.executor`, with the same arguments.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from heronpy.executor import Command, Executor
from heronpy.host import OWNER_ENV, HostProcess
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch, die_with_parent, log_to, main


def table(launch: Launch, container: int, plan: PackingPlan) -> list[Command]:
    packed = plan.container(container)
    if packed is None:
        return []
    return [
        _command(launch, f"stmgr-{container}", "sleeps", 1),
        _command(launch, f"metricsmgr-{container}", "sleeps", 2),
        *(_command(launch, i.instance_id(container), i.component, 0) for i in packed.instances),
    ]


def _command(launch: Launch, id: str, behaviour: str, stage: int) -> Command:
    argv = (sys.executable, __file__, "--child", id, "--behaviour", behaviour, "--dir", str(launch.dir))
    return Command(id, argv, stage)


def child(id: str, behaviour: str, directory: Path) -> None:
    die_with_parent()

    def end(*_: object) -> None:
        with (directory / "ended").open("a") as f:
            f.write(f"{id}\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "ignores" else end)
    if behaviour == "crashes":
        sys.exit("the user's code is wrong")
    if behaviour == "forks":
        # One in the group of its parent, one that got away into a session of its own.
        for new_session in (False, True):
            subprocess.Popen(["sleep", "600"], start_new_session=new_session)
    (directory / f"{id}.up").write_text(str(os.getpid()))
    if behaviour == "eats":
        eaten = []
        while True:
            eaten.append(os.urandom(1 << 20))
            time.sleep(0.01)
    while behaviour == "burns":
        sum(range(10_000))
    while True:
        signal.pause()


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--container", type=int)
    parser.add_argument("--child")
    parser.add_argument("--behaviour")
    args = parser.parse_args()
    if args.child:
        child(args.child, args.behaviour, args.dir)
        return

    async def make() -> Executor:
        launch = Launch.load(args.dir)
        log_to(launch.make_log_dir(args.container) / "executor.log", launch.config.logging)
        owner = os.environ.get(OWNER_ENV)
        return Executor(launch, args.container, table=table, owner=HostProcess.parse(owner) if owner else None)

    main(make, name="executor")


if __name__ == "__main__":
    _main()
