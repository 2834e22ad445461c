"""Heron's names for a state manager (`statemgr.yaml`), as those of this engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heronpy.errors import ConfigError

SESSION_TIMEOUT: Final = "heron.statemgr.session.timeout.ms"
SESSION_TIMEOUT_MS_MIN: Final = 1_000
_HERON_SESSION_TIMEOUT = "heron.statemgr.zookeeper.session.timeout.ms"
_INITIALIZE = (
    "heron.statemgr.zookeeper.is.initialize.tree",
    "heron.statemgr.localfs.is.initialize.file.tree",
)
# How Curator connects and repeats: here every call has one bound, and is repeated until then.
_CURATOR = (
    "heron.statemgr.zookeeper.connection.timeout.ms",
    "heron.statemgr.zookeeper.retry.count",
    "heron.statemgr.zookeeper.retry.interval.ms",
)


def translated_statemgr(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Configuration keys with Heron's for a state manager replaced by this engine's.

    Raises:
        ConfigError: the tree is not to be made: here it always is, where it is missing.
    """
    found = {key: value for key, value in values.items() if key not in _CURATOR}
    for key in _INITIALIZE:
        if found.pop(key, True) is not True:
            raise ConfigError(f"{where}: {key} can only be true: what is missing of the tree is made")
    if _HERON_SESSION_TIMEOUT in found:
        found.setdefault(SESSION_TIMEOUT, found.pop(_HERON_SESSION_TIMEOUT))
        found.pop(_HERON_SESSION_TIMEOUT, None)
    return found
