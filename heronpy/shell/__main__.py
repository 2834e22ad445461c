"""`python -m heronpy.shell --dir D --container N`: the heron-shell of one container."""

from __future__ import annotations

import argparse

from heronpy.runtime import Launch, log_to, main
from heronpy.shell.service import HeronShell


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heronpy.shell", description=__doc__)
    parser.add_argument("--dir", required=True, help="the topology's directory")
    parser.add_argument("--container", type=int, required=True)
    args = parser.parse_args()
    launch = Launch.load(args.dir)
    name = f"heron-shell-{args.container}"
    log_to(launch.make_log_dir(args.container) / f"{name}.log", launch.config.logging, topology=launch.topology)

    async def make() -> HeronShell:
        return HeronShell(launch, args.container)

    main(make, name=name)


if __name__ == "__main__":
    _main()
