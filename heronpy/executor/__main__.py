"""The executor as a process."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from heronpy.executor import Executor
from heronpy.host import OWNER_ENV, SUPERVISES_SERVICE_ENV, HostProcess
from heronpy.runtime import Launch, log_to, main


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heronpy.executor")
    parser.add_argument("--dir", type=Path, required=True, help="the topology's directory")
    parser.add_argument("--container", type=int, required=True)
    args = parser.parse_args()

    async def make() -> Executor:
        launch = Launch.load(args.dir)
        log_to(launch.make_log_dir(args.container) / "executor.log", launch.config.logging, topology=launch.topology)
        owner = os.environ.get(OWNER_ENV)
        return Executor(
            launch,
            args.container,
            owner=HostProcess.parse(owner) if owner else None,
            supervises_service=SUPERVISES_SERVICE_ENV in os.environ,
        )

    main(make, name="executor")


if __name__ == "__main__":
    _main()
