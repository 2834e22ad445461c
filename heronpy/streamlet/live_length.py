"""The batch length of a job's live views, beside them: rows of one length mean nothing to a program of another.

live/.batch-length-ms    written by the first topology, once
"""

from __future__ import annotations

from pathlib import Path

from heronpy.errors import ConfigError, HeronError
from heronpy.filesystem import Location, files_of

_FILE = ".batch-length-ms"


def claim_length(directory: Location, batch_length_ms: int) -> None:
    """Note down the batch length of live views that are to be written, or check it.

    Raises:
        ConfigError: they have rows of another one.
        HeronError: it cannot be written or read.
    """
    path = _path(directory)
    try:
        if _stored(path) is None:
            files_of(path).create(path, str(batch_length_ms).encode())  # unless another task was faster
    except OSError as e:
        raise HeronError(f"cannot write {path}: {e.strerror or e}") from e
    check_length(directory, batch_length_ms)


def check_length(directory: Location, batch_length_ms: int) -> None:
    """Check the batch length of live views.

    Raises:
        ConfigError: they have rows of another one.
        HeronError: it cannot be read.
    """
    path = _path(directory)
    stored = _stored(path)
    if stored is not None and stored != batch_length_ms:
        raise ConfigError(
            f"{path.parent} has live views of batches of {stored / 1000:g} s and the program's are "
            f"{batch_length_ms / 1000:g} s: set the length back, or give the program another directory"
        )


def _path(directory: Location) -> Location:
    return directory / "live" / (_FILE if isinstance(directory, Path) else _FILE[1:])


def _stored(path: Location) -> int | None:
    try:
        return int(files_of(path).read(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        raise HeronError(f"{path} cannot be read: {e}") from e
