"""What archives need beside the engine."""

from __future__ import annotations

from importlib.util import find_spec

from heronpy.errors import ConfigError


def require_arrow(who: str) -> None:
    """Refuse to plan an archive where none can be written. Does not import pyarrow, which takes a while.

    Raises:
        ConfigError: pyarrow is not installed; says what to install.
    """
    if find_spec("pyarrow") is None:
        raise ConfigError(f"{who} needs pyarrow: pip install 'heron-engine[spark]'")
