"""Where manifests, objects and logs are stored."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from heronpy.checkpoints._header import Header

if TYPE_CHECKING:
    from heronpy.checkpoints._log import LogHeader

MANIFESTS: Final = "manifests/"
OBJECTS: Final = "objects/"
_FOLDER_CHARACTERS_MAX = 180
_MANIFEST_NAME = re.compile(rf"{MANIFESTS}(\d{{20}})\.json")
_OBJECT_NAME = re.compile(rf"{OBJECTS}[^/]+/(\d{{20}})-\d+-\d+of\d+\.(?:base|delta|log)")


def manifest_name(checkpoint_id: int) -> str:
    """Where the manifest of a checkpoint is stored. In the order of names, the newest is the last."""
    return f"{MANIFESTS}{checkpoint_id:020d}.json"


def manifest_id(name: str) -> int | None:
    """The checkpoint that a stored manifest's name says, or None if this is no such name."""
    found = _MANIFEST_NAME.fullmatch(name)
    return int(found[1]) if found else None


def object_name(header: Header) -> str:
    """Where an object is stored: a name of its own for each task, checkpoint and epoch, and for a compacted one.

    A process of an older epoch that still runs overwrites nothing: the epoch is in the name.
    """
    kind = "base" if header.since == 0 else "delta"
    return _object_name(header.component, header.checkpoint_id, header.epoch, header.index, header.tasks, kind)


def base_name(component: str, checkpoint_id: int, epoch: int, index: int, tasks: int) -> str:
    """Where a task's compacted object is stored, as `object_name` says."""
    return _object_name(component, checkpoint_id, epoch, index, tasks, "base")


def log_name(header: LogHeader) -> str:
    """Where an alignment log is stored: beside the task's object."""
    return _object_name(header.component, header.checkpoint_id, header.epoch, header.index, header.tasks, "log")


def object_checkpoint_id(name: str) -> int | None:
    """The checkpoint that a stored object's or log's name says, or None if this is no such name."""
    found = _OBJECT_NAME.fullmatch(name)
    return int(found[1]) if found else None


def _object_name(component: str, checkpoint_id: int, epoch: int, index: int, tasks: int, kind: str) -> str:
    return f"{OBJECTS}{_folder(component)}/{checkpoint_id:020d}-{epoch}-{index}of{tasks}.{kind}"


def _folder(component: str) -> str:
    """A component's name as one of a directory."""
    quoted = quote(component, safe="").replace(".", "%2E")
    if len(quoted) > _FOLDER_CHARACTERS_MAX:
        return f"{quoted[:100]}-{hashlib.sha256(component.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return quoted
