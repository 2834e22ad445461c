"""The process of an application master: `python -m heron_scheduler.yarn.master --scheduler HOST:PORT[,…]`.

YARN starts it in a container, with its token and container 0's bootstrap file among the credentials of the container.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

from heron_scheduler._bootstrap import write_secrets
from heron_scheduler.yarn._credentials import MASTER_TOKEN
from heron_scheduler.yarn._given import given_credentials
from heron_scheduler.yarn._master import Master
from heron_scheduler.yarn._protocol import ResourceManager
from heron_scheduler.yarn._submission import BOOTSTRAP
from heronpy.container import Bootstrap
from heronpy.errors import HeronError
from heronpy.statemgr import open_statemgr


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heron_scheduler.yarn.master", description=__doc__)
    parser.add_argument("--scheduler", required=True, help="where the ResourceManager takes application masters")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with contextlib.ExitStack() as stack:
            given = given_credentials()
            # The same for all containers of an application: container_<cluster>_<application>_<attempt>_<number>.
            parts = [part for part in os.environ["CONTAINER_ID"].split("_") if part.isdigit()]
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=".", prefix="heron-"))).absolute()
            launch = Bootstrap.decode(given.secrets[BOOTSTRAP]).place(directory)
            write_secrets(launch, given.secrets[BOOTSTRAP], directory)
            launch.save()
            resource_manager = ResourceManager(args.scheduler.split(","), given.token(MASTER_TOKEN))
            stack.callback(resource_manager.close)
            state = stack.enter_context(contextlib.closing(open_statemgr(launch.statemgr, parents=False)))
            host = os.environ.get("NM_HOST") or socket.gethostname()
            Master(launch, state, resource_manager, application=f"application_{parts[0]}_{parts[1]}", host=host).run()
    except HeronError as e:
        print(f"heron: {e}", file=sys.stderr, flush=True)
        sys.exit(e.exit_code or 1)


if __name__ == "__main__":
    main()
