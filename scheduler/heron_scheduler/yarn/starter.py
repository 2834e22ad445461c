"""A container of YARN: `python -m heron_scheduler.yarn.starter --generation N`.

The bootstrap file is among the credentials of the container.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from heron_scheduler.yarn._given import given_credentials
from heron_scheduler.yarn._starter import Starter
from heron_scheduler.yarn._submission import BOOTSTRAP
from heronpy.errors import HeronError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heron_scheduler.yarn.starter", description=__doc__)
    parser.add_argument("--generation", type=int, required=True, help="of the order by which it is started")
    args = parser.parse_args()
    os.umask(0o077)
    try:
        code = Starter(given_credentials().secrets[BOOTSTRAP], args.generation, Path.cwd()).run()
    except (HeronError, OSError) as e:
        print(f"heron: {e}", file=sys.stderr, flush=True)
        code = e.exit_code if isinstance(e, HeronError) else 1
    sys.exit(code)


if __name__ == "__main__":
    main()
