"""`python -m heronpy.shell.store_logs --dir D --container N`: store the log files of a container that ends.

A process of its own, because the executor stays small and what a storage needs is large, or hangs: it is given
`STORE_S`, and what it has stored until then stays.
"""

from __future__ import annotations

import argparse
import signal
import sys

from heronpy.errors import HeronError
from heronpy.runtime import Launch, own_incarnation
from heronpy.shell import Container
from heronpy.shell.stored import open_log_store, store_logs

STORE_S = 20


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m heronpy.shell.store_logs", description=__doc__)
    parser.add_argument("--dir", required=True, help="the topology's directory")
    parser.add_argument("--container", type=int, required=True)
    args = parser.parse_args()
    signal.alarm(STORE_S)
    try:
        launch = Launch.load(args.dir)
        container = Container(launch.topology, launch.topology_id, args.container, launch.dir)
        with open_log_store(launch.config.logging.upload_uri, launch.topology, launch.topology_id) as storage:
            failed = store_logs(container, storage, own_incarnation())
    except HeronError as e:
        failed = [str(e)]
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(_main())
