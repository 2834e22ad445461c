"""`python -m heronpy.metricsmgr --dir D --container N`: the Metrics Manager of one container."""

import argparse

from heronpy.metricsmgr._service import MetricsManager
from heronpy.runtime import Launch, log_to, main


async def _make() -> MetricsManager:
    parser = argparse.ArgumentParser(prog="python -m heronpy.metricsmgr", description=__doc__)
    parser.add_argument("--dir", required=True, help="the topology's directory")
    parser.add_argument("--container", required=True, type=int)
    args = parser.parse_args()
    launch = Launch.load(args.dir)
    log_to(
        launch.make_log_dir(args.container) / f"metricsmgr-{args.container}.log",
        launch.config.logging,
        topology=launch.topology,
    )
    return MetricsManager(launch, args.container)


if __name__ == "__main__":
    main(_make, name="metricsmgr")
