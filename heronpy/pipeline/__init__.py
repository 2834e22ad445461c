"""The batch twin: a streamlet program as a Spark job, and reads that merge both; state in checkpoints as tables.

Needs the extra `spark`: pip install 'heron-engine[spark]', and Java 17 or newer. Names are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heronpy.pipeline._bootstrap_job import bootstrap
    from heronpy.pipeline._state_tables import StateTable, write_checkpoint
    from heronpy.pipeline._states import states
    from heronpy.pipeline.job import Job
    from heronpy.pipeline.manifest import Manifest
    from heronpy.pipeline.merged import Explained, MergedStore
    from heronpy.pipeline.progress import Progress
    from heronpy.pipeline.running import RunReport, run
    from heronpy.pipeline.session import spark_session
    from heronpy.pipeline.state_source import read_state, state_pairs
    from heronpy.pipeline.views import ViewReader

__all__ = [
    "Explained",
    "Job",
    "Manifest",
    "MergedStore",
    "Progress",
    "RunReport",
    "StateTable",
    "ViewReader",
    "bootstrap",
    "read_state",
    "run",
    "spark_session",
    "state_pairs",
    "states",
    "write_checkpoint",
]

_IN = {
    "Job": "job",
    "Explained": "merged",
    "Manifest": "manifest",
    "MergedStore": "merged",
    "Progress": "progress",
    "RunReport": "running",
    "StateTable": "_state_tables",
    "ViewReader": "views",
    "bootstrap": "_bootstrap_job",
    "read_state": "state_source",
    "run": "running",
    "spark_session": "session",
    "state_pairs": "state_source",
    "states": "_states",
    "write_checkpoint": "_state_tables",
}


def __getattr__(name: str) -> Any:
    if name not in _IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_IN[name]}"), name)
