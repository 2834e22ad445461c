"""Errors of Spark's tasks, in a form that reaches the driver."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from heronpy.errors import HeronError


@contextlib.contextmanager
def sendable_errors() -> Iterator[None]:
    """Inside, errors have a traceback that UTF-8 can hold, as all that they are chained with.

    PySpark announces an error to the JVM, then encodes its traceback. Where that fails, for half a surrogate pair in a
    path or in what user code said, the JVM waits for the text for ever, and so does the run.
    """
    try:
        yield
    except Exception as error:
        try:
            "".join(traceback.format_exception(error)).encode()
        except UnicodeEncodeError:
            message = str(error).encode(errors="backslashreplace").decode()
        else:
            raise
        if isinstance(error, HeronError):
            raise HeronError(message) from None
        raise RuntimeError(f"{type(error).__name__}: {message}") from None
