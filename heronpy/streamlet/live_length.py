"""The batch length of a job's live views, beside them: rows of one length mean nothing to a program of another.

live/.batch-length-ms    written by the first topology, once
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from heronpy.errors import ConfigError, HeronError

_FILE = ".batch-length-ms"


def claim_length(directory: Path, batch_length_ms: int) -> None:
    """Note down the batch length of live views that are to be written, or check it.

    Raises:
        ConfigError: they have rows of another one.
        HeronError: it cannot be written or read.
    """
    path = directory / "live" / _FILE
    new = path.with_name(f"{_FILE}-{secrets.token_hex(4)}")
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                new.write_text(str(batch_length_ms))
                with contextlib.suppress(FileExistsError):  # another task was faster
                    os.link(new, path)
            finally:
                new.unlink(missing_ok=True)
    except OSError as e:
        raise HeronError(f"cannot write {path}: {e.strerror or e}") from e
    check_length(directory, batch_length_ms)


def check_length(directory: Path, batch_length_ms: int) -> None:
    """Check the batch length of live views.

    Raises:
        ConfigError: they have rows of another one.
        HeronError: it cannot be read.
    """
    path = directory / "live" / _FILE
    try:
        stored = int(path.read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as e:
        raise HeronError(f"{path} cannot be read: {e}") from e
    if stored != batch_length_ms:
        raise ConfigError(
            f"{path.parent} has live views of batches of {stored / 1000:g} s and the program's are "
            f"{batch_length_ms / 1000:g} s: set the length back, or give the program another directory"
        )
