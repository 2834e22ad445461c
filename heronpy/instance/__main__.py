"""`python -m heronpy.instance`: run one instance as this process."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys

from heronpy.instance._instance import Instance
from heronpy.loader import activate
from heronpy.runtime import Launch, keep_freed_memory, log_to, main, take_long_turns
from heronpy.start import imports_done
from heronpy.usersecrets import MaskedLogs, load_secrets

# Batches are made of thousands of young containers that die soon. With the default threshold of 700 the collector would
# look at each of them several times; with this one it still finds the cycles that user code makes.
GC_THRESHOLDS = (50_000, 20, 50)
SWITCH_INTERVAL_S = 0.002


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heronpy.instance", description=__doc__)
    parser.add_argument("--dir", required=True, help="the topology's directory")
    parser.add_argument("--container", type=int, required=True)
    parser.add_argument("--instance", required=True, help="container_<n>_<component>_<task>")
    parser.add_argument("--code", default="", help="version of the user's code; none: what was submitted")
    parser.add_argument("--path", action="append", default=[], help="directory of it for sys.path")
    args = parser.parse_args()
    os.environ["HERON_INSTANCE"] = args.instance
    launch = Launch.load(args.dir)
    log_to(
        launch.make_log_dir(args.container) / f"{args.instance}.log", launch.config.logging, topology=launch.topology
    )
    if secrets := load_secrets(launch):
        for handler in logging.getLogger().handlers:
            handler.setFormatter(MaskedLogs(handler.formatter or logging.Formatter(), secrets))
    imports_done()  # what follows may import a user's script
    activate(launch.with_code(args.code, args.path) if args.code else launch)
    os.nice(launch.config.instance.nice)
    if launch.config.instance.batch_scheduling:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    take_long_turns(launch.config.instance.slice_ms)
    keep_freed_memory()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)

    async def make() -> Instance:
        return Instance(launch, args.container, args.instance, code=args.code, secrets=secrets)

    main(make, name=args.instance)


if __name__ == "__main__":
    _main()
