"""Log levels that are changed while processes run.

A level is set for a target: one process (an instance id, stmgr-1, …), all instances of a component, all processes of a
kind (`__stmgr__`, …), or the whole engine (`__engine__`). The closest target wins; without one the configured level
holds.
"""

from __future__ import annotations

import logging

from heronpy.proto import loglevels_pb2
from heronpy.runtime._logging import log_file

log = logging.getLogger(__name__)

ENGINE = "__engine__"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def level_for(levels: loglevels_pb2.LogLevels, *, process: str, component: str) -> str | None:
    """The level of a process; None for the configured one."""
    by_target = {level.target: level.level for level in levels.levels}
    targets = (process, component, ENGINE) if component.startswith("__") else (process, component)
    return next((by_target[target] for target in targets if target in by_target), None)


class LevelSwitch:
    """Changes the level of this process's logging, and takes it back.

    The root logger gets the level, and so do all loggers without a level of their own; those with a lower one are cut
    off at the process's log file. Loggers that user code made quieter stay so.
    """

    def __init__(self, *, process: str, component: str) -> None:
        self._process = process
        self._component = component
        self._before: int | None = None
        """The root logger's own level; None while it has it."""

    def follow(self, levels: loglevels_pb2.LogLevels) -> None:
        """Take the level that this process should have now. Does nothing if it has it. Never waits for user code."""
        root = logging.getLogger()
        wanted = level_for(levels, process=self._process, component=self._component)
        if wanted is None and self._before is None:
            return
        level = self._before if wanted is None else logging.getLevelNamesMapping().get(wanted, root.level)
        assert level is not None
        old = root.level
        if self._before is None:
            self._before = old
        if wanted is None:
            self._before = None
        if (file := log_file()) is not None:
            file.setLevel(logging.NOTSET if wanted is None else level)
        if level == old:
            return
        root.setLevel(level)
        # Above both levels, so that the log always says why it says more, or less, from here on.
        names = logging.getLevelName(old), logging.getLevelName(level)
        log.log(max(old, level, logging.WARNING), "log level %s -> %s", *names)
