"""The base of spouts and bolts."""

from __future__ import annotations

import logging
from typing import Any

_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


class BaseComponent:
    """Made by the engine, one object per task. Set yourself up in `initialize()`, not in `__init__()`."""

    def __init__(self, delegate: Any) -> None:
        self.delegate = delegate
        self.logger: logging.Logger = delegate.logger

    def log(self, message: str, level: str | None = None) -> None:
        """Log a message.

        Args:
            level: trace (as debug), debug, info (default), warn or error.

        Raises:
            ValueError: another level.
        """
        number = _LEVELS.get(level or "info")
        if number is None:
            raise ValueError(f"the level must be one of {', '.join(_LEVELS)}, not {level!r}")
        self.logger.log(number, "%s", message)
