"""Which batches after a changed one have other results, although their own input is as it was.

Where a reduction has another value of some keys in a batch, the results of later batches in which none of these keys
occurs are as they were. What is kept of each batch says which keys do, and tiers say it of many batches at once: those
without any of the keys are left out as a whole.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import pickle
from collections.abc import Collection, Container, Iterator, Sequence
from typing import Any

from heronpy.errors import StateError
from heronpy.filesystem import Location
from heronpy.pipeline.batch import Tier
from heronpy.pipeline.manifest import Manifest, read_children
from heronpy.pipeline.task import Part
from heronpy.pipeline.views import batch_files, read_rows, tier_files
from heronpy.stores import decode_key

KEYS_MAX = 100_000
"""Of changed keys. With more of them all later batches are taken to have some."""
_ROWS_MAX = 2_000_000
"""Read to find where they occur; what is left then is taken to have some."""
_TRIED = 16
"""Where so many batches in turn have some, others are taken to have, too, up to a tier that has none."""


def changed_keys(
    directory: Location, manifest: Manifest, view: str, parts: Sequence[Part], batches: Collection[int]
) -> set[Any] | None:
    """The keys that have another value in some batches than before; None: too many.

    Args:
        directory: the job's.
        manifest: before the batches are replaced.
        view: what a reduction keeps.
        parts: the new files of it.
        batches: those that are replaced.
    """
    changed: set[Any] = set()
    with contextlib.suppress(StateError):  # as if there were too many
        for batch in batches:
            done, written = manifest.batches.get(batch), [part for part in parts if part.batch == batch]
            if done is not None and view not in done.views:
                return None
            before = 0 if done is None else done.views[view].rows
            if before + sum(part.rows for part in written) > 2 * KEYS_MAX:
                return None
            values = {} if done is None else dict(_pairs(batch_files(directory, view, batch, done)))
            for key, value in _pairs([part.written for part in written]):
                if values.pop(key, None) != value:
                    changed.add(key)
            changed.update(values)
            if len(changed) > KEYS_MAX:
                return None
        return changed
    return None


def has_changed(directory: Location, manifest: Manifest, view: str, parts: Sequence[Part], batch: int) -> bool:
    """Whether a batch has other rows than before; also if it is new, or they cannot be read.

    Args:
        directory: the job's.
        manifest: before the batch is replaced.
        view: its name.
        parts: the new files of it.
        batch: its id.
    """
    done = manifest.batches.get(batch)
    if done is None or view not in done.views:
        return True
    with contextlib.suppress(StateError):
        before = _merged(batch_files(directory, view, batch, done))
        now = _merged([part.written for part in parts])
        return any(a != b for a, b in itertools.zip_longest(before, now))
    return True


def _merged(files: Sequence[Location]) -> Iterator[tuple[bytes, bytes]]:
    """Rows of parts, each of which has its own by key."""
    return heapq.merge(*map(read_rows, files))


class Occurrences:
    """Where some keys occur in what a reduction keeps."""

    def __init__(self, directory: Location, manifest: Manifest, view: str, keys: Container[Any]) -> None:
        """Nothing is looked for yet.

        Args:
            directory: the job's.
            manifest: what is done.
            view: what a reduction keeps.
            keys: to look for.
        """
        self._directory, self._manifest, self._view, self._keys = directory, manifest, view, keys
        self.rows = 0
        """That were read."""
        self._found_in_turn = 0

    def between(self, first: int, last: int) -> set[int]:
        """The batches from one to another, both of them included, in which some may occur."""
        found: set[int] = set()
        at = first
        waiting = self._manifest.tiers.get(self._view, [])[::-1]
        while waiting and at <= last:
            tier = waiting.pop()
            if tier.upto < at:
                continue
            if tier.after is not None and tier.after >= at:
                found |= self._batches(at, min(last, tier.after))
                at = tier.after + 1
            if at > last:
                break
            # One that begins before has the keys of the batch that was changed.
            if tier.after is not None and at == tier.after + 1 and not self._has_some(tier):
                at, self._found_in_turn = tier.upto + 1, 0
                continue
            children = read_children(self._folder(tier)) if tier.level > 1 else []
            if children:
                waiting += children[::-1]
            else:
                found |= self._batches(at, min(last, tier.upto))
                at = tier.upto + 1
        return found | self._batches(at, last)

    def _batches(self, first: int, last: int) -> set[int]:
        found = set()
        for n, done in self._manifest.batches.between(first, last) if first <= last else ():
            if self._view not in done.views:
                found.add(n)
            elif self._found_in_turn >= _TRIED or self._have_some(batch_files(self._directory, self._view, n, done)):
                self._found_in_turn += 1
                found.add(n)
            else:
                self._found_in_turn = 0
        return found

    def _has_some(self, tier: Tier) -> bool:
        return self._have_some(tier_files(self._directory, self._view, tier))

    def _have_some(self, files: Sequence[Location]) -> bool:
        if self.rows > _ROWS_MAX:
            return True
        with contextlib.suppress(StateError):  # the job that reads it reports it
            for key, _ in _pairs(files):
                self.rows += 1
                if key in self._keys:
                    return True
            return False
        return True

    def _folder(self, tier: Tier) -> Location:
        return self._directory / "views" / self._view / "base" / tier.version


def affected(batches: Sequence[int], occurrences: Collection[int], computed: Collection[int], back: int) -> set[int]:
    """Those of some batches whose results follow from others than before.

    Args:
        batches: those in question.
        occurrences: batches in which a changed key occurs.
        computed: batches that were replaced.
        back: how many batches before it results of a reduction are read for a batch.
    """
    other = {*computed, *occurrences}
    return {batch for batch in batches if any(source in other for source in range(batch - back, batch + 1))}


def _pairs(files: Sequence[Location]) -> Iterator[tuple[Any, bytes]]:
    """Keys, and encoded values.

    Raises:
        StateError: a file is damaged or missing, or keys are of a class that only tasks have.
    """
    for key, value in itertools.chain.from_iterable(map(read_rows, files)):
        try:
            made = pickle.loads(decode_key(key))
        except Exception as e:  # whatever a class of the user's raises
            raise StateError(f"a key cannot be read: {type(e).__name__}: {e}") from e
        yield made, value
