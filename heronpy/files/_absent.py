"""Which errors prove that a file is not there.

Every other error (no file descriptors, a failing disk, a file server that does not answer, a forbidden directory) says
nothing about the file: taking one for "missing" ends, restarts or reads again what is whole.
"""

from __future__ import annotations

ABSENT = (FileNotFoundError, NotADirectoryError)
"""For `except`."""
