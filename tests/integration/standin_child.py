"""A child of `standin_executor.py`: a tiny real process that (mis)behaves as it is told.

Run like a process of the engine, with the arguments ID BEHAVIOUR DIRECTORY. It imports little: there are many of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from heronpy.parent import die_with_parent


def child(id: str, behaviour: str, directory: Path) -> None:
    die_with_parent()

    def end(*_: object) -> None:
        with (directory / "ended").open("a") as f:
            f.write(f"{id}\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "ignores" else end)
    if behaviour == "crashes":
        sys.exit("the user's code is wrong")
    if behaviour == "forks":
        # One in the group of its parent, one that got away into a session of its own.
        for new_session in (False, True):
            subprocess.Popen(["sleep", "600"], start_new_session=new_session)
    (directory / f"{id}.up").write_text(str(os.getpid()))
    if behaviour == "eats":
        eaten = []
        while True:
            eaten.append(os.urandom(1 << 20))
            time.sleep(0.01)
    while behaviour == "burns":
        sum(range(10_000))
    while True:
        signal.pause()


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
