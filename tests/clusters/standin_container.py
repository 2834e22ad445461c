"""In place of `python -m heronpy.container`: says what it was given, and does as it is told.

Called by a script that a cluster takes for Python: `standin_container.py REPORTS -m heronpy.container FILE --dir DIR`.
It writes `REPORTS/<topology id>/<container>.<pid>.json`, and ends by SIGTERM, after `REPORTS/exit-<container>` has
appeared with an exit code in it, or at once if `REPORTS/fails-<container>` is there, with its words,
`REPORTS/unusable-<container>`, which says that it is of no use to start it again, or `REPORTS/retries-<container>`,
which asks for that.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any


def main(reports: Path, module: list[str], bootstrap: Path, workdir: Path) -> int:
    assert module == ["-m", "heronpy.container"]
    document = json.loads(bootstrap.read_text())
    container, topology_id = document["container"], document["launch"]["topology_id"]
    report = reports / topology_id / f"{container}.{os.getpid()}.json"
    report.parent.mkdir(exist_ok=True)

    def write(ended: str = "") -> None:
        values: dict[str, Any] = {
            "container": container,
            "pid": os.getpid(),
            "bootstrap": document,
            "mode": stat.S_IMODE(bootstrap.stat().st_mode),
            "workdir": str(workdir),
            "address": os.environ.get("HERON_ADVERTISE_ADDRESS", ""),
            "node": os.environ.get("SLURMD_NODENAME", ""),
            "ended": ended,
        }
        part = report.with_suffix(".part")
        part.write_text(json.dumps(values))
        part.rename(report)

    def end(*_: Any) -> None:
        write("in order")
        sys.exit(0)

    for name, failed in (("fails", 3), ("unusable", 2), ("retries", 75)):
        if (words := reports / f"{name}-{container}").exists():
            print(words.read_text(), file=sys.stderr)
            return failed
    signal.signal(signal.SIGTERM, end)
    write()
    wanted = reports / f"exit-{container}"
    while not wanted.exists():
        time.sleep(0.05)
    code = int(wanted.read_text())
    wanted.unlink()
    write(f"with {code}")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:4], Path(sys.argv[4]), Path(sys.argv[6])))
