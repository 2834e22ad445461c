"""A program on its way in: counted, bounded in time, and removed again unless all of it has arrived."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from fastapi import Request
from starlette.requests import ClientDisconnect

from heronpy.errors import HeronError, StateError, UnavailableError, UsageError


class TooLargeError(HeronError):
    """The request is larger than the server accepts."""

    exit_code = 2
    http_status = 413


@contextlib.asynccontextmanager
async def upload(request: Request, scratch: Path, *, bytes_max: int, timeout_s: float) -> AsyncIterator[Path]:
    """The body of a request as a file, for the duration of the block.

    Raises:
        TooLargeError: by what it says itself, before any of it is read, or by what comes.
        UsageError: there is none, or not all of it arrives.
        UnavailableError: it takes too long.
        StateError: it cannot be written.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > bytes_max:
        raise TooLargeError(f"the program has {int(declared):,} bytes, and {bytes_max:,} are the most that is accepted")
    with scratch_directory(scratch, "upload-") as directory:
        path = directory / "program.zip"
        try:
            async with asyncio.timeout(timeout_s):
                size = await _receive(request, path, bytes_max)
        except TimeoutError:
            raise UnavailableError(f"the program has not come within {timeout_s:g} s: send it again") from None
        except ClientDisconnect:
            raise UsageError("the upload of the program was cut off: send it again") from None
        except OSError as e:
            raise StateError(f"the program cannot be written: {e.strerror}") from e
        if not size:
            raise UsageError("there is no program in the request: send a zip archive as its body")
        yield path


@contextlib.contextmanager
def scratch_directory(scratch: Path, prefix: str) -> Iterator[Path]:
    """A directory for the duration of the block.

    Raises:
        StateError: it cannot be made.
    """
    try:
        made = tempfile.TemporaryDirectory(prefix=prefix, dir=scratch)
    except OSError as e:
        raise StateError(f"the program cannot be written: {e.strerror}") from e
    with made as directory:
        yield Path(directory)


async def _receive(request: Request, path: Path, bytes_max: int) -> int:
    size = 0
    with path.open("xb") as f:
        async for piece in request.stream():
            size += len(piece)
            if size > bytes_max:
                raise TooLargeError(f"the program has more than the {bytes_max:,} bytes that are accepted")
            f.write(piece)
    return size
