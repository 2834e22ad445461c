"""The batch twin: a streamlet program as a Spark job, and reads that merge both.

Needs the extra `spark`: pip install 'heron-engine[spark]', and Java 17 or newer. Names are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heronpy.pipeline._progress import Progress
    from heronpy.pipeline._states import states
    from heronpy.pipeline.job import Job
    from heronpy.pipeline.manifest import Manifest
    from heronpy.pipeline.merged import Explained, MergedStore
    from heronpy.pipeline.running import RunReport, run
    from heronpy.pipeline.session import spark_session
    from heronpy.pipeline.views import ViewReader

__all__ = [
    "Explained",
    "Job",
    "Manifest",
    "MergedStore",
    "Progress",
    "RunReport",
    "ViewReader",
    "run",
    "spark_session",
    "states",
]

_IN = {
    "Job": "job",
    "Explained": "merged",
    "Manifest": "manifest",
    "MergedStore": "merged",
    "Progress": "_progress",
    "RunReport": "running",
    "ViewReader": "views",
    "run": "running",
    "spark_session": "session",
    "states": "_states",
}


def __getattr__(name: str) -> Any:
    if name not in _IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_IN[name]}"), name)
