"""The scheduler service as a process: `python -m heron_scheduler.service --dir <topology directory>`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from heron_scheduler._local import LocalScheduler
from heron_scheduler._service import SchedulerService
from heron_scheduler._spi import scheduler_of
from heronpy.host import OWNER_ENV, HostProcess, service_log_dir
from heronpy.runtime import Launch, log_to, main


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heron_scheduler.service")
    parser.add_argument("--dir", type=Path, required=True, help="the topology's directory")
    args = parser.parse_args()

    async def make() -> SchedulerService:
        launch = Launch.load(args.dir)
        log_to(service_log_dir(launch) / "scheduler.log", launch.config.logging)
        cls = scheduler_of(launch.scheduler)
        owner = os.environ.get(OWNER_ENV)
        if owner is None:
            return SchedulerService(launch, cls(launch))
        # Owned: the service and local executors end with their owner, each by itself, so that nothing is left behind
        # whichever of them is dead by then.
        process = HostProcess.parse(owner)
        scheduler = LocalScheduler(launch, owner=process) if cls is LocalScheduler else cls(launch)
        return SchedulerService(launch, scheduler, owner=process)

    main(make, name="scheduler")


if __name__ == "__main__":
    _main()
