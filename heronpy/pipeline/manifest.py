"""What batch runs have finished: one JSON file, replaced as a whole: readers see all of a run or nothing."""

from __future__ import annotations

import contextlib
import fcntl
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from heronpy.errors import AlreadyExistsError, ConfigError, StateError
from heronpy.files import replace_file
from heronpy.filesystem import Location
from heronpy.pipeline import _manifest_log as log
from heronpy.pipeline.parts import part_name

MANIFEST_FILE = "manifest.json"
LOCK_FILE = "manifest.lock"
FORMAT = 2
_FORMER = 1
"""Still read: there the committed watermark has another name."""


@dataclass
class Parts:
    """The files of one output in one version."""

    rows: int = 0
    """In all files together."""
    part_rows: list[int] = field(default_factory=list)
    """Rows of part 0, 1, …; a part without rows has no file. Of views, keys are in part `stable_hash(key) % len`."""
    files: list[str] = field(default_factory=list)
    """Names of the files, where they do not follow from `part_rows`: of sinks, which choose their suffix, those that
    there are; in stores, where nothing is renamed, one of each part of a view, empty if it has no file."""

    def file_of(self, index: int) -> str:
        """The name of a part of a view that has rows."""
        return self.files[index] if self.files else part_name(index)


@dataclass
class Batch:
    """One batch id that is done."""

    version: str
    """Names its directories."""
    fingerprint: str
    """Of the input that it was computed from; another one means that it must be computed again."""
    elements: int = 0
    """Elements of this batch in the input, without duplicates."""
    duplicates: int = 0
    """Elements dropped because another one had the same id."""
    dead_letters: int = 0
    """Elements that were set aside because user code raised."""
    damaged: str = ""
    """What of its input could not be read, where that was accepted; empty: nothing."""
    finished_at_s: float = 0.0
    took_s: float = 0.0
    """The Spark job that computed it, maybe with others."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Of what it was computed from, this batch's own part, by archive: see `Archive.fingerprint`."""
    views: dict[str, Parts] = field(default_factory=dict)
    monoids: dict[str, str] = field(default_factory=dict)
    """What each view was merged with: values of different monoids cannot be merged."""
    sinks: dict[str, Parts] = field(default_factory=dict)


@dataclass
class Base:
    """A view's batches up to one, rolled up."""

    version: str
    upto: int
    """The last batch in it."""
    batches: dict[int, str]
    """The versions it was made of: when one of them is replaced, the base no longer counts."""
    parts: Parts = field(default_factory=Parts)


@dataclass
class Manifest:
    """The state of a job's batch side."""

    batch_length_ms: int
    committed_watermark: int | None = None
    """All batches up to and with this one are done, also those without any element; None: none are."""
    batches: dict[int, Batch] = field(default_factory=dict)
    bases: dict[str, Base] = field(default_factory=dict)
    """By view."""
    unread: dict[str, str] = field(default_factory=dict)
    """Files of archives of which something could not be read, and `stamp` of each: repaired, they are read again."""
    run: str = ""
    """In a store: the run that wrote it. Of two that wrote the same, only one can be the newest."""
    format: int = FORMAT

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
            if content is None:
                manifest = cls(batch_length_ms or 0)
                manifest.number = number
                return manifest
            raw = msgspec.json.decode(content)
            if isinstance(raw, dict) and raw.get("format") == _FORMER:
                raw |= {"format": FORMAT, "committed_watermark": raw.pop("closed_upto", None)}
            manifest = msgspec.convert(raw, cls, str_keys=True)
            manifest.number = number
        except FileNotFoundError:
            return cls(batch_length_ms or 0)
        except (OSError, msgspec.DecodeError, ValueError, RecursionError) as e:
            raise StateError(f"{path} cannot be read: {e}") from e
        if manifest.format != FORMAT:
            raise StateError(f"{path} has format {manifest.format}, this heronpy reads {FORMAT}: use its version")
        if batch_length_ms is not None and manifest.batch_length_ms != batch_length_ms and manifest.batches:
            raise ConfigError(
                f"{path} has batches of {manifest.batch_length_ms / 1000:g} s and the program's are "
                f"{batch_length_ms / 1000:g} s: set the length back, or give the program another directory"
            )
        if batch_length_ms is not None:
            manifest.batch_length_ms = batch_length_ms
        return manifest

    def others(self, view: str, monoid: str) -> list[int]:
        """Batches whose view was merged with another monoid than this, ascending."""
        return sorted(n for n, batch in self.batches.items() if batch.monoids.get(view, monoid) != monoid)

    def live_from(self, keep: int) -> int | None:
        """The first batch whose live rows are kept, if those of so many closed batches are; None: all are.

        Batches without any element do not count: else rows of long ago would go at once.
        """
        if self.committed_watermark is None:
            return None
        if not keep:
            return self.committed_watermark + 1
        closed = sorted((n for n in self.batches if n <= self.committed_watermark), reverse=True)
        return closed[keep - 1] if len(closed) >= keep else None

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
        path = directory / MANIFEST_FILE
        if isinstance(path, Path):
            replace_file(path, msgspec.json.format(msgspec.json.encode(self), indent=1))
        else:
            self.number = log.append(path, self.number, msgspec.json.encode(self))

    def base_of(self, view: str, upto: int | None = None) -> Base | None:
        """The roll-up to begin a read with: None if there is none that counts, or it reaches beyond `upto`."""
        base = self.bases.get(view)
        if base is None or (upto is not None and base.upto > upto):
            return None
        current = {n: batch.version for n, batch in self.batches.items() if n <= base.upto and view in batch.views}
        return base if current == base.batches else None


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
def lock(directory: Location) -> Iterator[None]:
    """Inside, no other process changes the job's batch side. The kernel frees it when the process dies.

    In a store it is a lease: who has slept through its end can be followed by another run, which `claim` keeps from
    being overwritten.

    Raises:
        AlreadyExistsError: another run holds it.
    """
    if not isinstance(directory, Path):
        with log.lease(directory / LOCK_FILE, f"another batch run works on {directory}"):
            yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK_FILE).open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyExistsError(
                f"another batch run works on {directory}: wait for its end, or end that process"
            ) from None
        yield
