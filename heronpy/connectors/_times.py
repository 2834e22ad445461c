"""Times of rows that have none of their own: that of their file, as it was when the rows were first seen."""

# A row that is read again after a kill must have the time that it had before, or an archive would file it twice and a
# live view count it in two batches. The time of a file changes as it grows, so it is written down before its first row
# is handed on, with the place up to which it is the time of rows: what is added later is of a later time.

from __future__ import annotations

import bisect
import itertools
import logging
import operator
import re
from collections.abc import Iterable, Sequence

import msgspec

from heronpy.connectors._files import damage
from heronpy.connectors._saved import save_json, saved_files
from heronpy.errors import HeronError
from heronpy.filesystem import Location, files_of

_log = logging.getLogger(__name__)
_SUFFIX = ".times.json"
_NAME = re.compile(rf"[0-9]+{re.escape(_SUFFIX)}")
Span = tuple[int, int]
"""(place, time in ms): rows that begin before the place, and not in an earlier span, have this time."""


def extended(spans: Sequence[Span], now: Span) -> list[Span]:
    """The spans of a part that has rows up to a place now, and if they are new, this is their time."""
    kept = list(spans)
    if kept and kept[-1][0] > now[0]:
        kept = []  # shorter than before: this is other data
    if not kept or kept[-1][0] < now[0]:
        kept.append(now)
    return kept


def unread(spans: Sequence[Span], offset: int) -> Sequence[Span]:
    """The spans without those that are over before the last row that begins before a place.

    That row may have been half written: then it is read again, whole.
    """
    return spans[max(0, bisect.bisect_right(spans, offset, key=operator.itemgetter(0)) - 1) :]


def times_at(spans: Sequence[Span], starts: Sequence[int]) -> list[int]:
    """The times of rows that begin at these places, which ascend."""
    times: list[int] = []
    for place, time_ms in itertools.islice(spans, len(spans) - 1):
        times += [time_ms] * (bisect.bisect_left(starts, place) - len(times))
    return times + [spans[-1][1]] * (len(starts) - len(times))


class Times:
    """The spans of one task's parts. Without a directory they last as long as this object."""

    def __init__(self, directory: Location | None, task_index: int) -> None:
        """Read what all tasks have written so far."""
        self._path = None if directory is None else directory / f"{task_index}{_SUFFIX}"
        self._known = {} if directory is None else _read_all(directory)
        self._mine: dict[str, list[Span]] = {}

    def keep(self, keys: Iterable[str]) -> None:
        """Save what is known of these parts, too: the tasks that read them now may not have seen it yet."""
        self._mine |= {key: self._known[key] for key in keys if key in self._known}

    def note(self, key: str, now: Span) -> None:
        """A part has rows up to a place, and if they are new, this is their time. `save` before they are read."""
        self._mine[key] = extended(self._known.get(key, ()), now)

    def of(self, key: str, starts: Sequence[int]) -> list[int] | None:
        """The times of rows that begin at these places, which ascend; None of a part that was not noted."""
        spans = self._mine.get(key)
        return None if spans is None else times_at(spans, starts)

    def save(self) -> None:
        """Write them, all or none. A failure is logged: rows may count twice then if this process is killed."""
        if self._path is None or all(self._known.get(key) == spans for key, spans in self._mine.items()):
            return
        try:
            save_json(self._path, self._mine)
        except (OSError, HeronError) as e:
            _log.warning("cannot save the times of files to %s: %s", self._path, getattr(e, "strerror", None) or e)


def _read_all(directory: Location) -> dict[str, list[Span]]:
    known: dict[str, list[Span]] = {}
    # The task that reads a part may be another one after a restart. The newest file counts: a part may be shorter now.
    files = files_of(directory)
    for path in [file.path for file in sorted(saved_files(directory, _NAME), key=lambda file: file.modified_s)]:
        try:
            known |= msgspec.json.decode(files.read(path), type=dict[str, list[Span]])
        except (OSError, msgspec.MsgspecError) as e:
            damage(str(path), e)
            _log.warning("cannot read the times of files from %s: %s", path, e)
    return known
