"""Times on the command line: `90s`, `10m`, `3h`."""

from __future__ import annotations

import re

from heronpy.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,6})([smhd])")


def seconds(option: str, text: str) -> int:
    """Seconds of a time like `10m`.

    Raises:
        UsageError: it has another form, or is 0; names the option.
    """
    found = _DURATION.fullmatch(text)
    value = int(found[1]) * _UNITS[found[2]] if found else 0
    if not value:
        raise UsageError(f"{option} {text!r} must be a number of s, m, h or d, like 10m")
    return value
