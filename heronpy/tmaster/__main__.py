"""`python -m heronpy.tmaster --dir D --container 0`: the Topology Master of a topology."""

import argparse

from heronpy.runtime import Launch, log_to, main
from heronpy.tmaster import TopologyMaster


async def _make() -> TopologyMaster:
    parser = argparse.ArgumentParser(prog="python -m heronpy.tmaster", description=__doc__)
    parser.add_argument("--dir", required=True, help="the topology's directory")
    parser.add_argument("--container", type=int, default=0)
    args = parser.parse_args()
    launch = Launch.load(args.dir)
    log_to(launch.make_log_dir(args.container) / "tmaster.log", launch.config.logging, topology=launch.topology)
    return TopologyMaster(launch, args.container)


if __name__ == "__main__":
    main(_make, name="tmaster")
