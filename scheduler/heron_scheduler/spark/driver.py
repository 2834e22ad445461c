"""The process of a Spark driver: `python -m heron_scheduler.spark.driver --dir <topology directory>`.

In the foreground, as a systemd unit wants it. It waits while another driver of the topology lives, runs what the orders
in the state manager ask for, and ends with exit code 0 once the topology is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from pathlib import Path

from heron_scheduler.spark._driver import Driver
from heronpy.errors import HeronError
from heronpy.host import service_log_dir
from heronpy.runtime import Launch, log_to
from heronpy.statemgr import open_statemgr

log = logging.getLogger(__name__)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heron_scheduler.spark.driver", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the topology's directory on this machine")
    args = parser.parse_args()
    try:
        launch = Launch.load(args.dir)
        directory = service_log_dir(launch)
        directory.mkdir(exist_ok=True)
        log_to(directory / "driver.log", launch.config.logging, topology=launch.topology)
        with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as state:
            Driver(launch, state).run()
    except HeronError as e:
        log.error("%s", e)
        print(f"heron: {e}", file=sys.stderr, flush=True)
        sys.exit(e.exit_code or 1)


if __name__ == "__main__":
    main()
