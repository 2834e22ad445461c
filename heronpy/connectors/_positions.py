"""How far the parts of a source have been read, in files that outlive the process."""

# Each task writes one file, and reads the files of all: the task that reads a part may be another one after a restart.
# Therefore a file has what is known of all parts, also of those that its task has no more. Positions only grow, so the
# largest counts. A part whose data was replaced by less begins a new generation, which counts for more than any
# position of an older one.

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable

import msgspec

from heronpy.connectors._files import damage
from heronpy.connectors._saved import save_json, saved_files
from heronpy.errors import HeronError
from heronpy.filesystem import Location, files_of

_log = logging.getLogger(__name__)
_SAVE_INTERVAL_S = 1.0
_NAME = re.compile(r"[0-9]+\.json")
Entry = tuple[int, int]


class Positions:
    """The positions of one task's parts. Without a directory they last as long as this object."""

    def __init__(self, directory: Location | None, task_index: int) -> None:
        """Read what all tasks have written so far."""
        self._directory = directory
        self._path = None if directory is None else directory / f"{task_index}.json"
        self._known = {} if directory is None else _read_all(directory)
        self._mine: dict[str, Entry] = {}
        self._changed = False
        self._saved_s = time.monotonic()

    def keep(self, keys: Iterable[str]) -> None:
        """Save what is known of these parts, too: the tasks that read them now may not have seen it yet."""
        self._mine |= {key: self._known[key] for key in keys if key in self._known}

    def of(self, key: str, limit: int) -> int | None:
        """Where to begin with a part; None: at its beginning.

        Args:
            key: of the part.
            limit: a position beyond it belongs to other data, and does not count.
        """
        generation, position = self._known.get(key, (0, -1))
        if position > limit:
            generation, position = generation + 1, -1
            self._changed = True  # to be saved soon: the data may grow beyond the old position
        self._mine[key] = (generation, position)
        return None if position < 0 else position

    def generation(self, key: str) -> int:
        """How often the data of a part that `of` was asked for has been replaced by less."""
        return self._mine[key][0]

    def advance(self, key: str, position: int) -> None:
        """Everything before `position` is acked."""
        self._mine[key] = (self._mine.get(key, (0, -1))[0], position)
        self._changed = True

    def save_if_due(self) -> None:
        """`save` at most once a second."""
        if self._changed and time.monotonic() - self._saved_s >= _SAVE_INTERVAL_S:
            self.save()

    def save(self) -> None:
        """Write them, all or none. A failure is logged: it costs duplicates after a restart, and no data."""
        self._saved_s = time.monotonic()
        if self._path is None or not self._changed:
            return
        try:
            save_json(self._path, self._mine)
        except (OSError, HeronError) as e:
            _log.warning("cannot save positions to %s: %s", self._path, getattr(e, "strerror", None) or e)
            return
        self._changed = False


def _read_all(directory: Location) -> dict[str, Entry]:
    known: dict[str, Entry] = {}
    files = files_of(directory)
    for path in [file.path for file in saved_files(directory, _NAME)]:
        try:
            entries = msgspec.json.decode(files.read(path), type=dict[str, Entry])
        except (OSError, msgspec.MsgspecError) as e:
            damage(str(path), e)
            _log.warning("cannot read positions from %s, so what they cover is read again: %s", path, e)
            continue
        for key, entry in entries.items():
            known[key] = max(known.get(key, (0, -1)), entry)
    return known
