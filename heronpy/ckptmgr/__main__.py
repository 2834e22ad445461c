"""`python -m heronpy.ckptmgr --dir D --container N`: the Checkpoint Manager of one container."""

from __future__ import annotations

import argparse

from heronpy.ckptmgr.service import CheckpointManager
from heronpy.runtime import Launch, log_to, main


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heronpy.ckptmgr", description=__doc__)
    parser.add_argument("--dir", required=True, help="the topology's directory")
    parser.add_argument("--container", type=int, required=True)
    args = parser.parse_args()
    launch = Launch.load(args.dir)
    name = f"ckptmgr-{args.container}"
    log_to(launch.make_log_dir(args.container) / f"{name}.log", launch.config.logging, topology=launch.topology)

    async def make() -> CheckpointManager:
        return CheckpointManager(launch, args.container)

    main(make, name=name)


if __name__ == "__main__":
    _main()
