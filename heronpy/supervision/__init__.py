"""Supervision: when to start, restart and end processes. Decisions only: no clock, no process.

The executor supervises the processes of its container with it, the scheduler service its containers, and executor 0 the
scheduler service.
"""

from heronpy.supervision._events import (
    DumpStacks,
    Effect,
    Event,
    Exited,
    Found,
    Hung,
    Kill,
    RestartRequested,
    Start,
    Started,
    StartFailed,
    StopRequested,
    Terminate,
    Ticked,
    Wanted,
)
from heronpy.supervision._hangs import Hang, HangDetector, Look
from heronpy.supervision._supervision import Phase, Supervision

__all__ = [
    "DumpStacks",
    "Effect",
    "Event",
    "Exited",
    "Found",
    "Hang",
    "HangDetector",
    "Hung",
    "Kill",
    "Look",
    "Phase",
    "RestartRequested",
    "Start",
    "StartFailed",
    "Started",
    "StopRequested",
    "Supervision",
    "Terminate",
    "Ticked",
    "Wanted",
]
