"""Libraries that are needed only by those who use them."""

from __future__ import annotations

import importlib
from typing import Any

from heronpy.errors import ConfigError


def need(module: str, extra: str, who: str) -> Any:
    """The module.

    Raises:
        ConfigError: it is not installed; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise ConfigError(f"{who} needs {module.partition('.')[0]}: pip install 'heron-engine[{extra}]'") from e
