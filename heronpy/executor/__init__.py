"""The executor: starts the processes of one container, restarts the dead, and ends them all when it ends.

Run as `python -m heronpy.executor --dir <topology directory> --container <n>`.
"""

from heronpy.executor._children import Children
from heronpy.executor._commands import LAST_CHECKPOINT_S, Command, process_table, stop_limit_s
from heronpy.executor._executor import Executor
from heronpy.executor._incarnation import (
    GONE_S,
    ReplacedError,
    Tenure,
    hold_incarnation,
    remove_record,
    restore_record,
    take_incarnation,
)

__all__ = [
    "GONE_S",
    "LAST_CHECKPOINT_S",
    "Children",
    "Command",
    "Executor",
    "ReplacedError",
    "Tenure",
    "hold_incarnation",
    "process_table",
    "remove_record",
    "restore_record",
    "stop_limit_s",
    "take_incarnation",
]
