"""The tasks themselves, without process, thread or socket: what the simulator and the tests drive."""

from heronpy.instance._bolt import BoltTask
from heronpy.instance._core import Signal, TaskCore, TaskFailed
from heronpy.instance._spout import SpoutTask

__all__ = ["BoltTask", "Signal", "SpoutTask", "TaskCore", "TaskFailed"]
