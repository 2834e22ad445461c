"""The scheduler service as a process: `python -m heron_scheduler.service --dir <topology directory>`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from heron_scheduler._local import LocalScheduler
from heron_scheduler._service import SchedulerService, service_log_dir
from heron_scheduler._spi import scheduler_of
from heronpy.executor import OWNER_ENV, HostProcess
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
        # Owned: the service ends with its owner, and local executors with the service, so that a kill -9 of either
        # leaves nothing behind.
        scheduler = LocalScheduler(launch, owner=HostProcess.of(os.getpid())) if cls is LocalScheduler else cls(launch)
        return SchedulerService(launch, scheduler, owner=HostProcess.parse(owner))

    main(make, name="scheduler")


if __name__ == "__main__":
    _main()
