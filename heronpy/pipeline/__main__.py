"""`python -m heronpy.pipeline VERB …`, and the script for `spark-submit`: the same as `heron pipeline VERB …`."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by its path: then the first place to look for modules is this folder, whose files must not stand in for a
    # user's modules of the same names; heronpy itself may not be installed for this Python.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    sys.path.append(str(here.parents[1]))

from heronpy.cli import main

if __name__ == "__main__":
    main("pipeline")
