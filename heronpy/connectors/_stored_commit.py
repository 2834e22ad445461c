"""Files in a store exactly once: uploaded to a hidden place, and copied beside the others when they are committed.

<url>/_heron/<topology id>/<sink>/<epoch>-<task>-<token>/     what belongs to one writer:
    writer                                                    it has been opened, and its leftovers were not removed
    part-<task>-<checkpoint>-<token><suffix>                  what it has prepared
    log/<n>                                                   what it may make visible; an empty one ends it: a fence
    <checkpoint>.committed                                    what it has prepared up to here was made visible
<url>/_heron/<topology id>/<sink>/committed/                  the same of writers that are gone
<url>/part-<task>-<checkpoint>-<token><suffix>                what is committed
"""

# A store cannot rename, so that the copy which makes a file visible cannot be the step that a newer writer prevents.
# That step is an entry in the writer's own log, created on condition that its number is free. A newer writer takes the
# next number with an empty entry, and then the older one has nothing left to write to: of the two, one has it. Who has
# an entry copies what it names: the same bytes to the same name, so it may be repeated by anybody, at any time.
#
# A writer deletes an entry when it has created the next. So a number that a newer one has found to be next may be free
# again although the log has gone on since, and an empty entry there ends nothing: it counts only as the last one. As
# there always is a last one, who lists the log after it has created an empty entry finds out.
#
# A writer announces itself before it lists the others, so of two that open at once at least one sees the other. What
# older ones have left is removed as with directories (`_staged_files.py`), `writer` before the log: so who creates an
# entry in a log whose fence is gone finds that `writer` is gone, too, and is fenced.
#
# What was made visible is removed from the hidden place after a note. If a process dies between the copy and that, the
# next one copies again: who takes files away from the directory may then find one a second time, under its old name.

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, NoReturn
from urllib.parse import quote

from heronpy.connectors._staged_files import GONE, Encoder, PreparedFile, kept_note, superfluous_notes
from heronpy.connectors._stored_glob import HIDDEN
from heronpy.connectors._stored_parts import LocalCopy
from heronpy.connectors.spi import SinkContext, TransactionalSinkWriter
from heronpy.errors import CheckpointError, FencedError
from heronpy.filesystem import Found, UrlPath, stored_files

_WRITER = "writer"
_LOG = "log"
_COMMITTED = ".committed"
_STAGING = re.compile(r"(\d+)-(\d+)-[0-9a-f]+")
_ENTRY = re.compile(r"\d{12}")
_FENCE = b""


class StoredStagedWriter(TransactionalSinkWriter):
    """One file for each checkpoint."""

    def __init__(
        self, place: UrlPath, suffix: str, encoder: Callable[[BinaryIO], Encoder], context: SinkContext
    ) -> None:
        """Fence older writers.

        Args:
            place: where committed files are.
            suffix: of their names.
            encoder: makes one for an empty file, open for writing and reading.
            context: the task.

        Raises:
            FencedError: there is a writer of a larger epoch.
            HeronError: the store cannot be written.
        """
        self._place = place
        self._files = stored_files(place)
        self._suffix = suffix
        self._copy = LocalCopy(context.name, encoder)
        self._epoch, self._task, self._name = context.epoch, context.task_index, context.name
        self._token = os.urandom(6).hex()
        self._run = place / HIDDEN / _safe(context.topology_id) / _safe(context.name)
        self._own = self._run / f"{self._epoch}-{self._task}-{self._token}"
        self._entries = 0
        self._left: list[UrlPath] = []
        """Of older writers, when this one was opened. What is fenced later is for others to recover."""
        self._last_entry: UrlPath | None = None
        self._note: UrlPath | None = None
        """Both the newest; older ones are of no use."""
        self._files.write(self._own / _WRITER, b"-")
        self._fence()

    def _fence(self) -> None:
        depth = len(self._run.parts)
        logs: dict[str, dict[int, int]] = {}
        """Sizes of entries by number, by writer."""
        for file in self._files.find(self._run):
            name = file.path.parts[depth]
            logs.setdefault(name, {}).update(_sizes([file], self._run / name / _LOG))
        others = [(name, found) for name in logs if (found := _STAGING.fullmatch(name)) and name != self._own.name]
        if any(int(found[1]) > self._epoch for _, found in others):
            self._files.delete([self._own / _WRITER])
            self._raise_fenced()
        for name, found in others:
            if int(found[1]) < self._epoch or int(found[2]) == self._task:
                self._end_log(self._run / name / _LOG, logs[name])
                self._left.append(self._run / name)

    def _end_log(self, log: UrlPath, entries: dict[int, int]) -> None:
        while not entries or entries[max(entries)] != len(_FENCE):
            self._files.create(log / _entry(max(entries, default=-1) + 1), _FENCE)
            entries = _sizes(self._files.listed(log), log)

    def write(self, element: Any) -> None:
        self._copy.add(element)

    def prepare(self, checkpoint_id: int) -> tuple[Any, ...] | None:
        if not self._copy:
            return None
        name = f"part-{self._task}-{checkpoint_id}-{self._token}{self._suffix}"
        with self._copy.take() as file:
            self._files.upload(self._own / name, file)
        staging = "/".join(self._own.parts[len(self._place.parts) :])
        return tuple(PreparedFile(staging, name, checkpoint_id))

    def commit(self, prepared: tuple[Any, ...]) -> None:
        self._commit([PreparedFile(*prepared)])
        if self._place / prepared[0] == self._own:
            self._clean()

    def recover(self, prepared: Sequence[Any]) -> None:
        if prepared:
            self._commit([PreparedFile(*each) for each in prepared])

    def abort(self, prepared: tuple[Any, ...]) -> None:
        each = PreparedFile(*prepared)
        self._files.delete([self._place / each.staging / each.name])

    def close(self) -> None:
        self._copy.discard()

    def _commit(self, prepared: Sequence[PreparedFile]) -> None:
        entry = self._log(json.dumps([each.name for each in prepared]).encode())
        done = [self._last_entry] if self._last_entry else []
        self._last_entry = entry
        for each in prepared:
            done += self._publish(each)
        self._files.delete(done)

    def _log(self, content: bytes) -> UrlPath:
        """Create the next entry of the log, unless it has ended."""
        try:
            while not self._files.create(entry := self._own / _LOG / _entry(self._entries), content):
                if self._files.read(entry) == _FENCE:
                    self._raise_fenced()
                self._entries += 1  # of a commit that has failed
            self._entries += 1
            self._files.stat(self._own / _WRITER)
        except FileNotFoundError:
            self._raise_fenced()
        return entry

    def _publish(self, prepared: PreparedFile) -> list[UrlPath]:
        """Make a file visible, unless it was before; what is of no use any more then."""
        staging = self._place / prepared.staging
        try:
            self._files.copy(staging / prepared.name, self._place / prepared.name)
        except FileNotFoundError:
            self._check_committed(staging, prepared)
            return []
        note = staging / f"{prepared.checkpoint_id}{_COMMITTED}"
        self._files.write(note, b"-")
        done = [staging / prepared.name]
        if staging == self._own:
            done += [self._note] if self._note else []
            self._note = note
        return done

    def _check_committed(self, staging: UrlPath, prepared: PreparedFile) -> None:
        kept = [file.path.name for file in self._files.listed(staging.parent / GONE)]
        noted = _newest_note(file.path for file in self._files.listed(staging))
        if max(noted, kept_note(kept, staging.name)) >= prepared.checkpoint_id:
            return
        try:
            self._files.stat(self._place / prepared.name)
        except FileNotFoundError:
            raise CheckpointError(
                f"sink {self._name}: {prepared.name}, which checkpoint {prepared.checkpoint_id} has, is neither in "
                f"{self._place} nor in {prepared.staging} there: it was removed"
            ) from None

    def _clean(self) -> None:
        """Remove what older writers have left. All of it that the restored checkpoint has is committed by now."""
        while self._left:
            found = self._files.below(self._left[-1])
            if (noted := _newest_note(found)) >= 0:
                self._files.write(self._run / GONE / f"{self._left[-1].name}-{noted}", b"-")
            logs = [path for path in found if path.parent.name == _LOG]
            self._files.delete([path for path in found if path not in logs])
            self._files.delete(logs)
            if len(self._left) == 1:
                self._files.remove_torn(self._run, [""])
                kept = [file.path.name for file in self._files.listed(self._run / GONE)]
                self._files.delete([self._run / GONE / name for name in superfluous_notes(kept)])
            self._left.pop()

    def _raise_fenced(self) -> NoReturn:
        raise FencedError(
            f"sink {self._name}: task {self._task} of restore epoch {self._epoch} is fenced: a newer one writes to "
            f"{self._place}"
        )


def _newest_note(paths: Iterable[UrlPath]) -> int:
    """Up to which checkpoint a writer has committed, by what is in its place; -1: nothing is known."""
    notes = (path.name.removesuffix(_COMMITTED) for path in paths if path.name.endswith(_COMMITTED))
    return max((int(note) for note in notes if note.isdecimal()), default=-1)


def _sizes(files: Sequence[Found[UrlPath]], log: UrlPath) -> dict[int, int]:
    """Sizes of a log's entries by number."""
    return {
        int(file.path.name): file.size_bytes
        for file in files
        if file.path.parent == log and _ENTRY.fullmatch(file.path.name)
    }


def _entry(number: int) -> str:
    return f"{number:012d}"


def _safe(name: str) -> str:
    """A name as a part of an object's name."""
    quoted = quote(name, safe="") or "-"
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted
