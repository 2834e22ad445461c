"""What a topology's directory says about its life: being submitted, killed, or gone; and its removal."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from heronpy.errors import StateError
from heronpy.files import ABSENT, outrace_removal, remove_empty, replace_file
from heronpy.host._process import HostProcess

_KILLED = "killed"
_SUBMITTING = "submitting"
GONE_S = 3.0
"""How long a directory must be missing before it counts as removed."""


def mark_killed(directory: Path) -> None:
    """Have everything of the topology end, now or as soon as it starts. There is no way back."""
    with contextlib.suppress(FileNotFoundError):  # gone, which ends everything too
        (directory / _KILLED).touch()


def is_killed(directory: Path) -> bool:
    """Whether somebody has begun to kill the topology."""
    return (directory / _KILLED).exists()


def begin_submission(directory: Path) -> None:
    """Mark a directory as being submitted by this process."""
    replace_file(directory / _SUBMITTING, str(HostProcess.of(os.getpid())), durable=False, mode=0o600)


def end_submission(directory: Path) -> None:
    """The topology runs. Also done by its scheduler service, so that it is complete without the submitter."""
    (directory / _SUBMITTING).unlink(missing_ok=True)


def in_submission(directory: Path) -> bool:
    """Whether a submission has begun and not ended, whether or not its submitter still lives."""
    return (directory / _SUBMITTING).exists()


def submitter_lives(directory: Path) -> bool:
    """Whether the submitter is still at it.

    Raises:
        StateError: it cannot be determined: who submits cannot be read.
    """
    try:
        return HostProcess.parse((directory / _SUBMITTING).read_text()).alive
    except (*ABSENT, ValueError):  # the latter: damaged, and no submitter writes that
        return False
    except OSError as e:
        raise StateError(f"{directory / _SUBMITTING} cannot be read: {e.strerror}") from e


def remove_directory(directory: Path) -> None:
    """Remove a topology's directory, if it is there, and those of its environ, role and cluster that are empty then.

    Raises:
        OSError: something in it cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        outrace_removal(lambda: shutil.rmtree(directory))  # another process may remove it, too
    if directory.parts[-5:-4] == ("topologies",):  # else it is a container's
        remove_empty(directory.parents[:3])


class DirectoryWatch:
    """Notices for a process of a topology that the topology is killed or that its directory is gone."""

    def __init__(self, directory: Path) -> None:
        """Remember which directory it is: another one of the same name is another submission.

        Raises:
            OSError: there is none.
        """
        self._directory = directory
        self._identity = self._look()
        if self._identity is None:
            raise FileNotFoundError(f"{directory} is gone")
        self._gone_since_s: float | None = None

    def ended(self, now_s: float) -> str:
        """Why the topology is at its end; empty while it is not."""
        if self._look() == self._identity:
            self._gone_since_s = None
            return "the topology was killed" if is_killed(self._directory) else ""
        self._gone_since_s = now_s if self._gone_since_s is None else self._gone_since_s
        return f"{self._directory} is gone" if now_s - self._gone_since_s >= GONE_S else ""

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self._directory.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # a file server that does not answer is not gone
            return self._identity
        return found.st_dev, found.st_ino
