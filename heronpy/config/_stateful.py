"""Heron's names for the storage of checkpoints (`stateful.yaml`), as those of this engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heronpy.errors import ConfigError
from heronpy.files import user_path

STATEFUL_FILE: Final = "stateful.yaml"
URL: Final = "heron.statefulstorage.url"
RETAINED: Final = "heron.statefulstorage.max.checkpoints"
_NESTED = "heron.statefulstorage.config"
_CLASS = "heron.statefulstorage.classname"
_CLASSPATH = "heron.statefulstorage.classpath"
_ROOT = "heron.statefulstorage.localfs.root.path"
_RETAINED = "heron.statefulstorage.localfs.max.checkpoints"
_SOCKETS = "heron.ckptmgr.network."


def translated(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Configuration keys with Heron's for the storage of checkpoints replaced by this engine's.

    A local file system is a URL; what tunes the sockets of Heron's Checkpoint Manager has nothing to tune here.

    Args:
        values: Keys and values as they were found.
        where: The file, for errors.

    Raises:
        ConfigError: another storage of Heron's than local files.
    """
    found = {key: value for key, value in values.items() if not str(key).startswith(_SOCKETS)}
    nested = found.pop(_NESTED, None) or {}
    if not isinstance(nested, Mapping):
        raise ConfigError(f"{where}: {_NESTED} must be a map of keys and values")
    found = {**nested, **found}
    found.pop(_CLASSPATH, None)
    kind = str(found.pop(_CLASS, None) or "")
    root, retained = found.pop(_ROOT, None), found.pop(_RETAINED, None)
    if kind and not kind.endswith("LocalFileSystemStorage") and URL not in found:
        raise ConfigError(f"{where}: {_CLASS}: {kind} is not there: set {URL} to a directory, s3://… or redis://…")
    if root:
        found.setdefault(URL, str(user_path(str(root))))
    if retained is not None:
        found.setdefault(RETAINED, retained)
    return found
