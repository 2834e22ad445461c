"""Files that are whole, and files that can be trusted.

A reader of a file that is replaced, also one after a crash, finds the old content whole or the new content whole. What
another user may have planted is read only if its owner and its kind are right.

Imports nothing of the engine but its errors, so that batch workers and sinks can use it alone.
"""

from heronpy.files._absent import ABSENT
from heronpy.files._create import create_file
from heronpy.files._empty import outrace_removal, remove_empty
from heronpy.files._local_disk import on_local_disk
from heronpy.files._local_path import local_path
from heronpy.files._lock import lock_within
from heronpy.files._owned_file import read_owned_file
from heronpy.files._private import make_private
from heronpy.files._replace import replace_file, replacing
from heronpy.files._sync import sync
from heronpy.files._user_path import user_path

__all__ = [
    "ABSENT",
    "create_file",
    "local_path",
    "lock_within",
    "make_private",
    "on_local_disk",
    "outrace_removal",
    "read_owned_file",
    "remove_empty",
    "replace_file",
    "replacing",
    "sync",
    "user_path",
]
