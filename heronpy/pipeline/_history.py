"""The batches of a manifest, in segments: files of some hundred batches each, which are never changed, only replaced.

A manifest names its segments, with their sums and checksums. So it is loaded without any of them, and a run reads and
writes those that it has to do with: the last one, and those of batches that late data have come for. To change a batch
is to write its segment under a new name; what counts is decided by the manifest that names it, in one step.
"""

from __future__ import annotations

import bisect
import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field

import msgspec

from heronpy.errors import StateError
from heronpy.pipeline.batch import Batch, Seen

SEGMENT_BATCHES = 256
"""A segment of so many batches is followed by the next; late ones make it grow to twice as many."""


@dataclass
class SeenSum:
    """What an archive has in a segment."""

    batches: int = 0
    files: int = 0
    bytes: int = 0
    rows: int = 0
    unreadable: int = 0


@dataclass
class Segment:
    """What a manifest says about a segment."""

    name: str
    """Of its file."""
    first: int
    """The first batch in it, done or seen; it reaches up to the first of the next."""
    digest: str
    """Of the file."""
    done: int = 0
    """How many batches are."""
    elements: int = 0
    duplicates: int = 0
    damaged: int = 0
    """Batches that were computed without some of their input."""
    views: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many batches have each view, and its rows."""
    monoids: dict[str, list[str]] = field(default_factory=dict)
    """What each view was merged with."""
    seen: dict[str, SeenSum] = field(default_factory=dict)
    """By archive."""


@dataclass
class Content:
    """What is in the file of a segment."""

    batches: dict[int, Batch] = field(default_factory=dict)
    seen: dict[str, dict[int, Seen]] = field(default_factory=dict)
    """By archive."""

    def ids(self) -> list[int]:
        """Of all batches that something is known of."""
        return sorted({*self.batches, *(batch for found in self.seen.values() for batch in found)})


@dataclass
class _Part:
    """A segment in memory."""

    segment: Segment
    content: Content | None = None
    changed: bool = False
    last: int | None = None
    """The last batch in it, where that was looked up."""


class History(MutableMapping[int, Batch]):
    """Batches that are done, by id, ascending; and what archives have in them. A batch is changed by setting it again.

    Segments are read when something of them is asked for.
    """

    def __init__(
        self, segments: Iterable[Segment] = (), read: Callable[[Segment], Content] = lambda segment: Content()
    ) -> None:
        """Name segments.

        Args:
            segments: ascending.
            read: reads one.
        """
        self._parts = [_Part(segment) for segment in segments]
        self._read = read
        self.touched: dict[int, set[str]] = {}
        """Batches that were set or deleted, with those of their views of which there are other files now."""

    @classmethod
    def of(cls, batches: Mapping[int, Batch]) -> History:
        """One of batches that are in no segment yet."""
        history = cls()
        for batch in sorted(batches):
            history[batch] = batches[batch]
        history.touched.clear()
        return history

    def __getitem__(self, batch: int) -> Batch:
        part = self._part_of(batch)
        if part is None:
            raise KeyError(batch)
        return self._content(part).batches[batch]

    def __setitem__(self, batch: int, done: Batch) -> None:
        content = self._changed(batch)
        self._touch(batch, content.batches.get(batch), done)
        content.batches[batch] = done

    def __delitem__(self, batch: int) -> None:
        if batch not in self:
            raise KeyError(batch)
        content = self._changed(batch)
        self._touch(batch, content.batches.pop(batch), None)

    def _touch(self, batch: int, before: Batch | None, after: Batch | None) -> None:
        old, new = (
            {} if done is None else {v: done.version_of(p) for v, p in done.views.items()} for done in (before, after)
        )
        other = {view for view in old.keys() | new.keys() if old.get(view) != new.get(view)}
        self.touched.setdefault(batch, set()).update(other)

    def __contains__(self, batch: object) -> bool:
        part = self._part_of(batch) if isinstance(batch, int) else None
        return part is not None and batch in self._content(part).batches

    def __iter__(self) -> Iterator[int]:
        for part in self._parts:
            yield from sorted(self._peek(part).batches)

    def __reversed__(self) -> Iterator[int]:
        for part in reversed(self._parts):
            yield from sorted(self._peek(part).batches, reverse=True)

    def __len__(self) -> int:
        return sum(segment.done for segment in self.segments())

    def items(self) -> Iterator[tuple[int, Batch]]:  # type: ignore[override]  # an iterator: no segment is read twice
        return self.where(lambda _: True)

    def values(self) -> Iterator[Batch]:  # type: ignore[override]  # as above
        return (done for _, done in self.items())

    def where(self, concerns: Callable[[Segment], bool]) -> Iterator[tuple[int, Batch]]:
        """The batches of some segments, chosen by what the manifest says about them."""
        for part in self._parts:
            if concerns(self._current(part)):
                yield from sorted(self._peek(part).batches.items())

    def between(self, first: int | None, last: int | None) -> Iterator[tuple[int, Batch]]:
        """The batches from one to another (None: no limit), both of them included."""
        for part in self._parts_between(first, last):
            for batch, done in sorted(self._content(part).batches.items()):
                if (first is None or batch >= first) and (last is None or batch <= last):
                    yield batch, done

    def before(self, batch: int) -> Iterator[tuple[int, Batch]]:
        """The batches before one, the last of them first."""
        for part in reversed(self._parts_between(None, batch - 1)):
            found = self._content(part).batches
            yield from ((n, found[n]) for n in sorted(found, reverse=True) if n < batch)

    def segments(self) -> Iterator[Segment]:
        """What the manifest says about each; of those that are changed, what it will say."""
        return (self._current(part) for part in self._parts)

    @property
    def changed(self) -> bool:
        """Whether anything is to be written."""
        return any(part.changed for part in self._parts)

    def amend(self, batch: int, done: Batch) -> None:
        """Note something else of a batch whose results are the same: no tier of it is given up."""
        self._changed(batch).batches[batch] = done

    def seen(self, archive: str, batch: int) -> Seen | None:
        """What was found last of a batch in an archive."""
        part = self._part_of(batch)
        return None if part is None else self._content(part).seen.get(archive, {}).get(batch)

    def set_seen(self, archive: str, batch: int, found: Seen | None) -> None:
        """Remember what is there; None: nothing is."""
        if found is not None:
            self._changed(batch).seen.setdefault(archive, {})[batch] = found
        elif self.seen(archive, batch) is not None:
            del self._changed(batch).seen[archive][batch]

    def seen_from(self, archive: str, first: int | None) -> Iterator[tuple[int, Seen]]:
        """What was found in an archive from some batch on, ascending."""
        for part in self._parts_between(first, None):
            for batch, found in sorted(self._content(part).seen.get(archive, {}).items()):
                if first is None or batch >= first:
                    yield batch, found

    def last_seen(self, archive: str) -> int | None:
        """The last batch that was found in an archive."""
        for part in reversed(self._parts):
            if found := self._content(part).seen.get(archive):
                return max(found)
        return None

    def written(self, write: Callable[[str, bytes], None]) -> tuple[list[Segment], list[str]]:
        """Write what is changed. All segments, as they are then; and the names of those that are replaced.

        Args:
            write: called with the name and the content of each file.
        """
        kept: list[_Part] = []
        replaced = []
        for part in self._parts:
            if not part.changed:
                kept.append(part)
                continue
            if part.segment.name:
                replaced.append(part.segment.name)
            for content in _divided(self._content(part)):
                segment, data = _encoded(content)
                write(segment.name, data)
                kept.append(_Part(segment, content))
        self._parts = kept
        return [part.segment for part in kept], replaced

    def _part_of(self, batch: int) -> _Part | None:
        if not self._parts:
            return None
        at = bisect.bisect_right(self._parts, batch, key=lambda part: part.segment.first)
        return self._parts[max(0, at - 1)]

    def _parts_between(self, first: int | None, last: int | None) -> list[_Part]:
        begin = 0
        if first is not None:
            begin = max(0, bisect.bisect_right(self._parts, first, key=lambda part: part.segment.first) - 1)
        return [part for part in self._parts[begin:] if last is None or part.segment.first <= last]

    def _changed(self, batch: int) -> Content:
        """The content of the segment that a batch is in, or will be; it is written with the manifest."""
        part = self._part_of(batch)
        if part is not None and part is self._parts[-1] and self._is_full(part) and batch > self._last(part):
            part = None
        if part is None:
            part = _Part(Segment("", batch, ""), Content(), last=batch)
            self._parts.append(part)
        content = self._content(part)
        part.segment.first = min(part.segment.first, batch)
        part.last = max(self._last(part), batch)
        part.changed = True
        return content

    def _is_full(self, part: _Part) -> bool:
        content = self._content(part)
        return max(len(content.batches), *(len(found) for found in content.seen.values()), 0) >= SEGMENT_BATCHES

    def _last(self, part: _Part) -> int:
        if part.last is None:
            part.last = self._content(part).ids()[-1]
        return part.last

    def _content(self, part: _Part) -> Content:
        if part.content is None:
            part.content = self._read(part.segment)
        return part.content

    def _peek(self, part: _Part) -> Content:
        """Read without keeping it: going through all of a history must not have all of it in memory."""
        return self._read(part.segment) if part.content is None else part.content

    def _current(self, part: _Part) -> Segment:
        if not part.changed or part.content is None:
            return part.segment
        return _summed(part.content, part.segment.name, part.segment.first, part.segment.digest)


def decoded(data: bytes, segment: Segment, where: str) -> Content:
    """The content of a segment's file.

    Raises:
        StateError: it is damaged, or another one is in its place.
    """
    if _digest(data) != segment.digest:
        raise StateError(f"{where} is damaged: its checksum is not the one in the manifest")
    try:
        return msgspec.json.decode(data, type=Content)
    except (msgspec.DecodeError, ValueError, RecursionError) as e:
        raise StateError(f"{where} cannot be read: {e}") from e


def _divided(content: Content) -> Iterator[Content]:
    """A content in segments that are not too large; of nothing, none."""
    ids = content.ids()
    size = SEGMENT_BATCHES if len(ids) > 2 * SEGMENT_BATCHES else max(1, len(ids))
    for begin in range(0, len(ids), size):
        some = ids[begin : begin + size]
        yield Content(
            {batch: content.batches[batch] for batch in some if batch in content.batches},
            {
                archive: own
                for archive, found in content.seen.items()
                if (own := {batch: found[batch] for batch in some if batch in found})
            },
        )


def _encoded(content: Content) -> tuple[Segment, bytes]:
    first = content.ids()[0]
    data = msgspec.json.encode(content)
    return _summed(content, f"{first}-{secrets.token_hex(8)}.json", first, _digest(data)), data


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _summed(content: Content, name: str, first: int, digest: str) -> Segment:
    segment = Segment(name, first, digest, done=len(content.batches))
    monoids: dict[str, set[str]] = {}
    for done in content.batches.values():
        segment.elements += done.elements
        segment.duplicates += done.duplicates
        segment.damaged += bool(done.damaged)
        for view, parts in done.views.items():
            batches, rows = segment.views.get(view, (0, 0))
            segment.views[view] = batches + 1, rows + parts.rows
        for view, monoid in done.monoids.items():
            monoids.setdefault(view, set()).add(monoid)
    segment.monoids = {view: sorted(found) for view, found in monoids.items()}
    for archive, found in content.seen.items():
        total = segment.seen[archive] = SeenSum()
        for one in found.values():
            total.batches += 1
            total.files += one.files
            total.bytes += one.bytes
            total.rows += one.rows
            total.unreadable += one.unreadable
    return segment
