"""Processes of the engine that are forked, with all modules imported, instead of executed.

An engine process needs a third of a second of CPU to import its modules, and tens of megabytes for them. A fork server
(`python -m heronpy.forkserver MODULE…`) has imported them once: what it forks starts in milliseconds and shares their
memory. It runs no user code, and has no threads and no gRPC that would not survive a fork.
"""

from heronpy.forkserver._client import ForkServer, reap_adopted

__all__ = ["ForkServer", "reap_adopted"]
