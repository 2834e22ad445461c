"""What batch runs have finished: one small JSON file, replaced as a whole: readers see all of a run or nothing.

It names the files that the batches are in (`_history`), which are never changed. So to load it, or to replace it, costs
the same after a hundred batches and after a hundred thousand.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from heronpy.errors import AlreadyExistsError, ConfigError, HeronError, NotFoundError, StateError
from heronpy.files import replace_file
from heronpy.filesystem import Location, files_of
from heronpy.pipeline import _former_manifest as former
from heronpy.pipeline import _manifest_log as log
from heronpy.pipeline._history import Content, History, Segment, decoded
from heronpy.pipeline.batch import Batch, Parts, Seen, Tier

__all__ = ["Batch", "History", "Manifest", "Parts", "Seen", "Tier", "lock", "manifest_stamp"]

MANIFEST_FILE = "manifest.json"
LOCK_FILE = "manifest.lock"
HISTORY = "history"
"""The folder of the segments."""
CHILDREN = "children.json"
"""Beside the parts of a tier: the tiers that it was made of."""
FORMAT = 4
_FORMATS = (3, FORMAT)
"""In 3, all outputs of a batch have its version."""
_KEPT_S = 600.0
_KEPT = 32
"""So long, and so many, segments that are replaced stay for who has loaded a manifest that names them; in any case
those that the last save has replaced."""


@dataclass
class Manifest:
    """The state of a job's batch side."""

    batch_length_ms: int
    committed_watermark: int | None = None
    """All batches up to and with this one are done, also those without any element; None: none are."""
    batches: History = field(default_factory=History)
    tiers: dict[str, list[Tier]] = field(default_factory=dict)
    """By view, ascending: what to begin a read with. See `read_plan`."""
    unread: dict[str, str] = field(default_factory=dict)
    """Files of archives of which something could not be read, and `stamp` of each: repaired, they are read again."""
    letters: list[str] = field(default_factory=list)
    """Staged files of dead letters that count from now on, as `origin/name`: the run that saved it publishes them;
    if it died, the next run."""
    run: str = ""
    """In a store: the run that wrote it. Of two that wrote the same, only one can be the newest."""
    todo: list[int] = field(default_factory=list)
    """Batches whose input was not what it was computed from, or whose followers are not done with it."""
    program: str = ""
    """What `todo` was found for. Empty, or of another program: all batches are to be looked at."""
    is_settled: bool = False
    """Whether results of all batches but those in `todo` are of what is before them. If not, a run has died, or was not
    to go so far, and later batches than those have other fingerprints than those that follow from what is there."""
    checked: dict[str, int | None] = field(default_factory=dict)
    """Up to which batch each archive was looked through without an announcement, see `_archive_index`."""
    lettered: dict[str, list[int]] = field(default_factory=dict)
    """Versions with dead letters of no batch, and the batches that were computed with them."""
    garbage: list[str] = field(default_factory=list, compare=False)
    """Folders below the job's that are to be removed: they were replaced."""
    retired: list[tuple[str, float]] = field(default_factory=list, compare=False)
    """Segments that were replaced, and when: they are removed some time later."""

    def __post_init__(self) -> None:
        self.number = 0  # in a store, of the version that this one was loaded from; no field, so not in the file

    @classmethod
    def load(cls, directory: Location, batch_length_ms: int | None = None) -> Manifest:
        """Read a job's manifest; a new one if there is none.

        Args:
            directory: the job's.
            batch_length_ms: the program's; None: whatever the manifest says.

        Raises:
            ConfigError: it was made with another batch length.
            StateError: it cannot be read.
        """
        path, number = directory / MANIFEST_FILE, 0
        try:
            if isinstance(path, Path):
                content: bytes | None = path.read_bytes()
            else:
                number, path, content = log.newest(path)
            manifest = cls(batch_length_ms or 0) if content is None else _decoded(content, directory, path)
            manifest.number = number
        except FileNotFoundError:
            return cls(batch_length_ms or 0)
        except (OSError, msgspec.DecodeError, ValueError, RecursionError) as e:
            raise StateError(f"{path} cannot be read: {e}") from e
        if batch_length_ms is not None and manifest.batch_length_ms != batch_length_ms and len(manifest.batches):
            raise ConfigError(
                f"{path} has batches of {manifest.batch_length_ms / 1000:g} s and the program's are "
                f"{batch_length_ms / 1000:g} s: set the length back, or give the program another directory"
            )
        if batch_length_ms is not None:
            manifest.batch_length_ms = batch_length_ms
        return manifest

    def others(self, view: str, monoid: str) -> list[int]:
        """Batches whose view was merged with another monoid than this, ascending."""
        candidates = self.batches.where(lambda segment: segment.monoids.get(view, [monoid]) != [monoid])
        return [n for n, batch in candidates if batch.monoids.get(view, monoid) != monoid]

    def lacking(self, view: str, upto: int | None) -> list[int]:
        """Batches up to one (None: none at all) that do not have a view, ascending."""
        candidates = self.batches.where(lambda segment: segment.views.get(view, (0, 0))[0] < segment.done)
        return [n for n, batch in candidates if upto is not None and n <= upto and view not in batch.views]

    def newest_has(self, view: str) -> bool:
        """Whether the last of its batches has a view."""
        newest = next(reversed(self.batches), None)
        return newest is not None and view in self.batches[newest].views

    def view_rows(self, view: str) -> int:
        """Of all batches together."""
        return sum(segment.views.get(view, (0, 0))[1] for segment in self.batches.segments())

    def live_from(self, keep: int) -> int | None:
        """The first batch whose live rows are kept, if those of so many closed batches are; None: all are.

        Batches without any element do not count: else rows of long ago would go at once.
        """
        if self.committed_watermark is None:
            return None
        if not keep:
            return self.committed_watermark + 1
        for n in reversed(self.batches):
            keep -= n <= self.committed_watermark
            if not keep:
                return n
        return None

    def read_plan(
        self, view: str, upto: int | None = None, directory: Location | None = None, *, first: int | None = None
    ) -> tuple[list[Tier], list[tuple[int, Batch]]]:
        """What to read of a view for everything up to a batch (None: for all): tiers, and the batches in none of them.

        Args:
            view: its name.
            upto: the batch.
            directory: the job's: of a tier that reaches beyond the range, those that it was made of are taken. Without
                it, its batches are.
            first: the batch that the range begins with; None: the first that there is.

        Raises:
            HeronError: batches cannot be read.
        """
        tiers: list[Tier] = []
        batches: list[tuple[int, Batch]] = []
        at = None if first is None else first - 1
        waiting = self.tiers.get(view, [])[::-1]
        while waiting:
            tier = waiting.pop()
            if first is not None and tier.upto < first:
                continue
            if upto is not None and tier.after is not None and tier.after >= upto:
                break
            begins_before = first is not None and (tier.after is None or tier.after < first - 1)
            if begins_before or (upto is not None and tier.upto > upto):
                if directory is not None and tier.level > 1:
                    waiting += read_children(directory / "views" / view / "base" / tier.version)[::-1]
                continue
            if tier.after != at:
                batches += self.batches.between(None if at is None else at + 1, tier.after)
            tiers.append(tier)
            at = tier.upto
        if at is None or upto is None or at < upto:
            batches += self.batches.between(None if at is None else at + 1, upto)
        return tiers, [(n, batch) for n, batch in batches if view in batch.views]

    def claim(self, directory: Location) -> None:
        """In a store: take over from all other runs. None that began before can save a manifest from now on.

        Raises:
            FencedError: another run was faster.
        """
        if not isinstance(directory, Path):
            self.run = secrets.token_hex(8)
            self.number = log.claim(directory / MANIFEST_FILE, self.number, self.run)

    def save(self, directory: Location) -> None:
        """Replace the manifest: atomically, and durably on return.

        Raises:
            FencedError: another run has taken over.
        """
        given_up = self._split_tiers(directory, self.batches.touched)
        self.garbage += given_up
        folder = directory / HISTORY
        now_s = time.time()
        segments, replaced = self.batches.written(lambda name, data: files_of(directory).write(folder / name, data))
        retired = [*self.retired, *((name, now_s) for name in replaced)]
        kept_now = retired[-max(_KEPT, len(replaced)) :]
        self.retired = [(name, at_s) for name, at_s in kept_now if abs(now_s - at_s) < _KEPT_S]
        path, content = directory / MANIFEST_FILE, msgspec.json.encode(_Root.of(self, segments))
        if isinstance(path, Path):
            replace_file(path, msgspec.json.format(content, indent=1))
        else:
            self.number = log.append(path, self.number, content)
        self.batches.touched.clear()
        kept = {name for name, _ in self.retired}
        with contextlib.suppress(HeronError, OSError):  # the next run removes them
            files_of(directory).delete([folder / name for name, _ in retired if name not in kept])
            for name in given_up:
                files_of(directory).delete_folder(directory / name)

    def segment_files(self) -> set[str]:
        """Names of the files in `HISTORY` that count, or are kept for others."""
        return {segment.name for segment in self.batches.segments()} | {name for name, _ in self.retired}

    def _split_tiers(self, directory: Location, touched: Mapping[int, Collection[str]]) -> list[str]:
        """Let tiers with batches that were replaced count no longer, but those that they were made of, if they do.

        Returns:
            The folders of the former.
        """
        given_up = []
        for view, tiers in self.tiers.items():
            kept: list[Tier] = []
            concerned = [batch for batch, views in touched.items() if view in views]
            waiting = tiers[::-1]
            while waiting:
                tier = waiting.pop()
                if not any(batch in tier for batch in concerned):
                    kept.append(tier)
                    continue
                given_up.append(f"views/{view}/base/{tier.version}")
                waiting += read_children(directory / given_up[-1])[::-1]
            self.tiers[view] = kept
        return given_up


def read_children(folder: Location) -> list[Tier]:
    """The tiers that a tier was made of; none, if it was made of batches."""
    path = folder / CHILDREN
    try:
        return msgspec.json.decode(files_of(path).read(path), type=list[Tier])
    except (FileNotFoundError, msgspec.DecodeError, ValueError):
        return []  # then it is made of the batches again


def every_tier(directory: Location, manifest: Manifest) -> list[tuple[str, Tier]]:
    """The tiers of all views, also those that others were made of, and count again if these are given up.

    Raises:
        OSError, HeronError: they cannot be read.
    """
    found = [(view, tier) for view, tiers in manifest.tiers.items() for tier in tiers]
    for view, tier in found:
        if tier.level > 1:
            found += [(view, child) for child in read_children(directory / "views" / view / "base" / tier.version)]
    return found


class _Root(msgspec.Struct, kw_only=True):
    """The file."""

    format: int
    batch_length_ms: int
    committed_watermark: int | None
    segments: list[Segment]
    tiers: dict[str, list[Tier]]
    unread: dict[str, str]
    run: str
    todo: list[int]
    program: str
    checked: dict[str, int | None]
    is_settled: bool = False
    letters: list[str]
    lettered: dict[str, list[int]]
    garbage: list[str]
    retired: list[tuple[str, float]]

    @classmethod
    def of(cls, manifest: Manifest, segments: list[Segment]) -> _Root:
        names = [name for name in cls.__struct_fields__ if name not in ("format", "segments")]
        return cls(format=FORMAT, segments=segments, **{name: getattr(manifest, name) for name in names})


class _Format(msgspec.Struct):
    format: int = 0


def _decoded(content: bytes, directory: Location, path: Location) -> Manifest:
    found = msgspec.json.decode(content, type=_Format).format
    if found in former.FORMATS:
        old = former.decoded(content)
        return Manifest(
            old.batch_length_ms,
            old.committed_watermark,
            History.of(old.batches),
            {view: [tier] for view in old.bases if (tier := old.tier_of(view)) is not None},
            old.unread,
            old.letters,
            old.run,
        )
    if found not in _FORMATS:
        raise StateError(f"{path} has format {found}, this heronpy reads {FORMAT}: use its version")
    root = msgspec.json.decode(content, type=_Root)
    for name in (*(segment.name for segment in root.segments), *(name for name, _ in root.retired)):
        if "/" in name or not name.endswith(".json"):
            raise StateError(f"{path} names {name!r:.200} as a file of {directory / HISTORY}")
    fields = {name: getattr(root, name) for name in root.__struct_fields__ if name not in ("format", "segments")}
    return Manifest(batches=History(root.segments, lambda segment: _read(directory, segment)), **fields)


def _read(directory: Location, segment: Segment) -> Content:
    path = directory / HISTORY / segment.name
    try:
        data = files_of(path).read(path)
    except FileNotFoundError as e:
        raise NotFoundError(f"{path} is gone: a run has replaced it meanwhile (read again), or it is lost") from e
    except OSError as e:
        raise StateError(f"{path} cannot be read: {e}") from e
    return decoded(data, segment, str(path))


def manifest_stamp(directory: Location) -> object:
    """Changes whenever a job's manifest is replaced; None: there is none.

    Raises:
        OSError, HeronError: it cannot be determined.
    """
    path = directory / MANIFEST_FILE
    if not isinstance(path, Path):
        return log.newest_number(path)
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@contextlib.contextmanager
def lock(directory: Location) -> Iterator[Callable[[], None]]:
    """Inside, no other process changes the job's batch side. The kernel frees it when the process dies.

    In a store it is a lease: who has slept through its end can be followed by another run, which `claim` keeps from
    being overwritten. What the block is given is to be called between loading the manifest and claiming it, and raises
    if such another one works: that is to lose nothing.

    Raises:
        AlreadyExistsError: another run holds it.
    """
    if not isinstance(directory, Path):
        with log.lease(directory / LOCK_FILE, f"another batch run works on {directory}") as confirm:
            yield confirm
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK_FILE).open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyExistsError(
                f"another batch run works on {directory}: wait for its end, or end that process"
            ) from None
        yield lambda: None
