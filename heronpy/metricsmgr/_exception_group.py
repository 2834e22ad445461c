"""Which exceptions are the same one: equal classes and frames, and messages that differ in nothing but numbers and ids.

Grouped by whole stacks, an exception whose message holds an order number would be a new one for each order, and the
bounded lists of exceptions would hold nothing else.
"""

from __future__ import annotations

import hashlib
import re

_FRAME = re.compile(r'^[\s|+-]*File "')
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_QUOTED = re.compile(r"""(['"])(?:(?!\1).)*\d(?:(?!\1).)*\1""")
_ID = re.compile(r"\b(?=\w*\d)\w+\b")
_NUMBER = re.compile(r"[-+]?#(?:[.,:/-]#)*(?:e[-+]?#)?")


def exception_group(stacktrace: str) -> str:
    """The key of the group that an exception belongs to.

    Args:
        stacktrace: the traceback as text.
    """
    masked = "\n".join(line if _FRAME.match(line) else mask(line) for line in stacktrace.splitlines())
    return hashlib.blake2b(masked.encode(errors="replace"), digest_size=12).hexdigest()


def mask(message: str) -> str:
    """A message with `#` for every number, id, and quoted text that has digits in it."""
    message = _UUID.sub("#", message)
    message = _QUOTED.sub("#", message)
    message = _ID.sub("#", message)  # numbers, hexadecimal ones, and words with digits in them
    return _NUMBER.sub("#", message)
