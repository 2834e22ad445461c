"""The executor of a container that has its directory to itself: `heronpy.executor`, and what only such a one does.

It keeps the container's certificate renewed and the user's code on the host. When its cluster ends it, it has a
checkpoint taken first, and when it ends on purpose, it leaves no secret there.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from heronpy.container._codes import HostedCodes
from heronpy.container._directory import remove_secrets
from heronpy.container._ending import TRY_AGAIN
from heronpy.container._last_checkpoint import LastCheckpoint
from heronpy.container._renewal import CertificateRenewal
from heronpy.executor import Executor
from heronpy.runtime import Launch, log_to, main, own_incarnation

log = logging.getLogger(__name__)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heronpy.container.executor")
    parser.add_argument("--dir", type=Path, required=True, help="the topology's directory on this host")
    parser.add_argument("--container", type=int, required=True)
    args = parser.parse_args()
    launch = Launch.load(args.dir)

    async def make() -> Executor:
        log_to(launch.make_log_dir(args.container) / "executor.log", launch.config.logging, topology=launch.topology)
        renewal = CertificateRenewal(launch, args.container) if launch.config.security.tls else None
        codes = HostedCodes(launch, args.container) if args.container else None  # container 0 runs no user code
        last = LastCheckpoint(launch, args.container) if launch.checkpoints else None
        incarnation = own_incarnation()
        return Executor(launch, args.container, incarnation=incarnation, beside=renewal, codes=codes, before_end=last)

    try:
        main(make, name="executor")
    except SystemExit:
        sys.exit(TRY_AGAIN)  # its log says why, and the cluster starts it again
    try:
        remove_secrets(launch, args.container)
    except OSError as e:
        log.error("secrets of the topology are left in %s: %s", launch.dir, e)


if __name__ == "__main__":
    _main()
