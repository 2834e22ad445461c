"""Small files that are replaced as a whole: a reader, also after a crash, finds all of it or the old one."""

from __future__ import annotations

import logging
import re
from typing import Any

import msgspec

from heronpy.connectors._files import damage
from heronpy.filesystem import Found, Location, files_of

_log = logging.getLogger(__name__)


def save_json(path: Location, document: Any) -> None:
    """Write a document, durably.

    Raises:
        OSError, HeronError: it cannot be written. What was there stays.
    """
    files_of(path).write(path, msgspec.json.encode(document))


def saved_files(directory: Location, name: re.Pattern[str]) -> list[Found[Any]]:
    """The files in a directory that have such a name.

    Raises:
        UnavailableError: it cannot be listed now.
    """
    try:
        return [file for file in files_of(directory).listed(directory) if name.fullmatch(file.path.name)]
    except OSError as e:
        damage(str(directory), e)
        _log.warning("cannot read what was saved in %s: %s", directory, e)
        return []
