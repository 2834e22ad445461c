"""Files exactly once: written in a hidden directory, and moved beside the others when their checkpoint is committed.

<path>/.heron/<topology id>/<sink>/<epoch>-<task>-<token>/   what one writer has prepared: its staging directory
<path>/.heron/<topology id>/<sink>/committed/                up to which checkpoint those have committed that are gone
<path>/part-<task>-<checkpoint>-<token><suffix>              what is committed
"""

# A rename is the commit, and the staging directory is the fence: a newer writer renames it, and after that no rename of
# the older one finds its source. So no task has to ask who may write and then write, with a gap in between.
#
# A rename can be repeated, as the name is known to be taken by this file alone (the token is random), unless somebody
# has taken the committed file away, as readers of a directory do. Therefore the commit is noted down before: a file
# that was to be committed and is not there any more was committed. The note outlives its writer: a savepoint, or an
# older checkpoint that is restored because newer ones are damaged, may ask for it much later.

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, Protocol
from urllib.parse import quote

from heronpy.connectors.spi import SinkContext, TransactionalSinkWriter
from heronpy.errors import CheckpointError, ConfigError, FencedError, UnavailableError
from heronpy.files import ABSENT, sync

_HIDDEN = ".heron"
_OPEN = "open"
_COMMITTED = ".committed"
_FENCED = ".fenced"
GONE = "committed"
"""Where notes of writers are kept that are gone: `<staging directory>-<checkpoint>`."""
_KEPT_MAX = 10_000
_PART = re.compile(r"part-\d+-(\d+)-")
_STAGING = re.compile(rf"(\d+)-(\d+)-[0-9a-f]+({re.escape(_FENCED)})?")


class Encoder(Protocol):
    """Writes elements of one format into one file."""

    def add(self, element: Any) -> None:
        """Take an element; it is in the file after `finish`.

        Raises:
            ValueError: the format cannot hold it. The file is as before.
        """
        ...

    def finish(self) -> None:
        """Write what is left."""
        ...


def sync_file(f: BinaryIO) -> None:
    """Make what was written durable."""
    f.flush()
    os.fsync(f.fileno())


class PreparedFile(NamedTuple):
    """A file that waits for its commit. Paths are relative to the sink's directory. In checkpoints a plain tuple."""

    staging: str
    """The staging directory."""
    name: str
    """Of the file, there and when it is committed."""
    checkpoint_id: int


class StagedWriter(TransactionalSinkWriter):
    """One file for each checkpoint."""

    def __init__(
        self, directory: Path, suffix: str, encoder: Callable[[BinaryIO], Encoder], context: SinkContext
    ) -> None:
        """Fence older writers.

        Args:
            directory: Where committed files are.
            suffix: Of their names.
            encoder: Makes one for an empty file, open for writing and reading.
            context: The task.

        Raises:
            FencedError: there is a writer of a larger epoch.
            ConfigError: the directory cannot be written.
        """
        self._directory = directory
        self._suffix = suffix
        self._encoder_of = encoder
        self._epoch, self._task = context.epoch, context.task_index
        self._token = os.urandom(6).hex()
        self._name = context.name
        self._run = directory / _HIDDEN / (quote(context.topology_id, safe="") or "-") / quote(context.name, safe="")
        self._staging = self._run / f"{self._epoch}-{self._task}-{self._token}"
        self._file: BinaryIO | None = None
        self._encoder: Encoder | None = None
        self._count = 0
        self._left: list[Path] = []
        """Of older writers, when this one was opened. What is fenced later is for others to recover."""
        self._broken = ""
        try:
            self._staging.mkdir(parents=True)
            self._fence()
            for folder in (self._run, *self._run.parents[:3], directory.parent):
                sync(folder)
        except OSError as e:
            raise ConfigError(f"sink {context.name} cannot write to {directory}: {e.strerror or e}") from e

    def _fence(self) -> None:
        """Of two that are opened at the same time, at least one sees the other's directory here."""
        others = [(path, found) for path in self._run.iterdir() if (found := _STAGING.fullmatch(path.name))]
        if any(int(found[1]) > self._epoch for _, found in others):
            self._staging.rmdir()
            self._raise_fenced()
        for path, found in others:
            epoch, task, fenced = int(found[1]), int(found[2]), found[3]
            is_older = epoch < self._epoch or (task == self._task and path != self._staging)
            if not is_older:
                continue
            if not fenced:
                renamed = path.with_name(path.name + _FENCED)
                with contextlib.suppress(FileNotFoundError):  # another task was faster
                    path.rename(renamed)
                path = renamed
            self._left.append(path)

    def write(self, element: Any) -> None:
        with self._usable():
            if self._encoder is None:
                self._file = (self._staging / _OPEN).open("w+b")
                self._encoder = self._encoder_of(self._file)
            self._encoder.add(element)
        self._count += 1

    def prepare(self, checkpoint_id: int) -> tuple[Any, ...] | None:
        with self._usable():
            if not self._count:
                return None
            assert self._file is not None
            assert self._encoder is not None
            self._encoder.finish()
            sync_file(self._file)
            self._file.close()
            self._file = self._encoder = None
            self._count = 0
            name = f"part-{self._task}-{checkpoint_id}-{self._token}{self._suffix}"
            (self._staging / _OPEN).rename(self._staging / name)
            sync(self._staging)
            return tuple(PreparedFile(str(self._staging.relative_to(self._directory)), name, checkpoint_id))

    def commit(self, prepared: tuple[Any, ...]) -> None:
        prepared = PreparedFile(*prepared)
        with self._translated():
            if not any(self._publish(folder, prepared) for folder in self._folders(prepared)):
                self._check_committed(prepared)
            if self._is_own(prepared):
                self._clean()

    def abort(self, prepared: tuple[Any, ...]) -> None:
        prepared = PreparedFile(*prepared)
        with self._translated():
            for folder in self._folders(prepared):
                with contextlib.suppress(*ABSENT):
                    (folder / prepared.name).unlink()

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):  # it is invisible, and goes with its directory
                (self._staging / _OPEN).unlink()
            self._file = self._encoder = None
            self._count = 0

    def _is_own(self, prepared: PreparedFile) -> bool:
        return self._directory / prepared.staging == self._staging

    def _folders(self, prepared: PreparedFile) -> list[Path]:
        """Where it may be. What a newer writer has fenced is not this one's to commit."""
        staging = self._directory / prepared.staging
        return [staging] if self._is_own(prepared) else [staging, staging.with_name(staging.name + _FENCED)]

    def _publish(self, folder: Path, prepared: PreparedFile) -> bool:
        source = folder / prepared.name
        try:
            if not source.exists():
                return False
            noted = folder / f"{prepared.checkpoint_id}{_COMMITTED}"
            noted.touch()
            sync(folder)
            source.rename(self._directory / prepared.name)
            sync(self._directory)
            sync(folder)
            for older in folder.glob(f"*{_COMMITTED}"):
                if _noted(older) < prepared.checkpoint_id:
                    older.unlink(missing_ok=True)
        except ABSENT:  # fenced, or committed by another writer, since we looked
            return False
        return True

    def _check_committed(self, prepared: PreparedFile) -> None:
        noted = max(map(_newest_note, self._folders(prepared)))
        staging = self._directory / prepared.staging
        with contextlib.suppress(*ABSENT):
            noted = max(noted, kept_note(os.listdir(staging.parent / GONE), staging.name))
        if (self._directory / prepared.name).exists() or noted >= prepared.checkpoint_id:
            sync(self._directory)
            return
        if self._is_own(prepared):
            self._check_fence()
        raise CheckpointError(
            f"sink {self._name}: {prepared.name}, which checkpoint {prepared.checkpoint_id} has, is neither in "
            f"{self._directory} nor in {prepared.staging} there: it was removed"
        )

    def _clean(self) -> None:
        """Remove what older writers have left. All of it that the restored checkpoint has is committed by now."""
        while self._left:
            folder = self._left.pop()
            with contextlib.suppress(OSError):  # then it stays, for the next writer
                self._keep_note(folder)
                shutil.rmtree(folder, ignore_errors=True)

    def _keep_note(self, folder: Path) -> None:
        # A process may have died between the note and the rename, and an older checkpoint have been restored.
        unpublished = (int(found[1]) for path in folder.iterdir() if (found := _PART.match(path.name)))
        noted = min(_newest_note(folder), min(unpublished, default=1 << 63) - 1)
        if noted < 0:
            return
        kept = self._run / GONE
        kept.mkdir(exist_ok=True)
        (kept / f"{folder.name.removesuffix(_FENCED)}-{noted}").touch()
        for name in superfluous_notes(os.listdir(kept)):
            (kept / name).unlink(missing_ok=True)
        sync(kept)
        sync(self._run)

    def _check_fence(self) -> None:
        if not self._staging.exists():
            self._raise_fenced()

    def _raise_fenced(self) -> NoReturn:
        raise FencedError(
            f"sink {self._name}: task {self._task} of restore epoch {self._epoch} is fenced: a newer one writes to "
            f"{self._directory}"
        )

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """After an error of the file system it is unknown what is in the file: then nothing more is taken."""
        if self._broken:
            raise UnavailableError(self._broken)
        try:
            with self._translated():
                yield
        except UnavailableError as e:
            self._broken = str(e)
            raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            if e.errno == errno.ENOENT:
                self._check_fence()
            raise UnavailableError(f"sink {self._name} cannot write to {self._directory}: {e.strerror or e}") from e


def kept_note(names: Iterable[str], staging: str) -> int:
    """Up to which checkpoint a writer that is gone has committed, by the names of all notes; -1: nothing is known."""
    numbers = (name.removeprefix(f"{staging}-") for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


def superfluous_notes(names: Iterable[str]) -> list[str]:
    """Those of the oldest writers, beyond so many."""
    return sorted(names, key=lambda name: int(name.split("-", 1)[0]))[:-_KEPT_MAX]


def _newest_note(folder: Path) -> int:
    return max(map(_noted, folder.glob(f"*{_COMMITTED}")), default=-1)


def _noted(path: Path) -> int:
    """The checkpoint of a note."""
    number = path.name.removesuffix(_COMMITTED)
    return int(number) if number.isdecimal() else -1
