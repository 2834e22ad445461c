"""Exceptions and values of a user that cannot be shown, or only at a price."""

from __future__ import annotations

import sys
from typing import Any


class SilentError(Exception):
    """Raises when it is shown."""

    def __str__(self) -> str:
        raise RuntimeError("not to be shown")

    __repr__ = __str__


class LeavingError(Exception):
    """Ends the process when it is shown."""

    def __str__(self) -> str:
        sys.exit("not to be shown")

    __repr__ = __str__


class LongError(Exception):
    """Says megabytes."""

    def __str__(self) -> str:
        return "line\n" * 100_000 + "word " * 1_000_000

    __repr__ = __str__


class SurrogateError(Exception):
    """Says what cannot be encoded."""

    def __str__(self) -> str:
        return "name \udc80"

    __repr__ = __str__


ERRORS: tuple[type[Exception], ...] = (SilentError, LeavingError, LongError, SurrogateError)


class Silent:
    """A value that raises whatever is asked of it, but can be pickled."""

    def _refuse(self, *_args: Any) -> Any:
        raise RuntimeError("not to be looked at")

    __repr__ = __str__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __lt__ = __format__ = _refuse  # type: ignore[assignment]
