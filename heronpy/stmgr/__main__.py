"""`python -m heronpy.stmgr`: run one Stream Manager as this process."""

from __future__ import annotations

import argparse

from heronpy.runtime import Launch, keep_freed_memory, log_to, main
from heronpy.stmgr import Stmgr


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heronpy.stmgr", description=__doc__)
    parser.add_argument("--dir", required=True, help="the topology's directory")
    parser.add_argument("--container", type=int, required=True)
    args = parser.parse_args()
    launch = Launch.load(args.dir)
    name = f"stmgr-{args.container}"
    log_to(launch.make_log_dir(args.container) / f"{name}.log", launch.config.logging, topology=launch.topology)

    keep_freed_memory()

    async def make() -> Stmgr:
        return Stmgr(launch, args.container)

    main(make, name=name)


if __name__ == "__main__":
    _main()
