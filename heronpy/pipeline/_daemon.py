"""The parent of Spark's Python workers in one executor: it imports, once, what each of them would import.

A worker is a fork of this process, and Spark starts several in every job. Forks must come from a process without
threads, so what starts one on import does not belong here, such as PyArrow; numpy is configured not to.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys

_ARCHIVES = ("pyspark.zip", "-src.zip")
"""How the names of the archives end that Spark puts first on the path: what is in them is compiled at every start."""
_MODULES = (
    "heronpy.archive._deadletter",
    "heronpy.pipeline.duplicates",
    "heronpy.pipeline.execute",
    "heronpy.pipeline.rollup",
    "heronpy.pipeline.views",
    "pyspark.worker",
)


def main() -> None:
    """Be `pyspark.daemon`."""
    installed = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    before, sys.path[:] = sys.path[:], installed
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("py4j") is None:
        sys.path[:] = before
    for entry in set(before) - set(sys.path):  # else every task looks into the archives again
        sys.path_importer_cache.pop(entry, None)
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with contextlib.suppress(ImportError):  # an executor's Python may lack something: its user says what
        for module in _MODULES:
            importlib.import_module(module)
    if threads is None:
        del os.environ["OPENBLAS_NUM_THREADS"]
    else:
        os.environ["OPENBLAS_NUM_THREADS"] = threads
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
