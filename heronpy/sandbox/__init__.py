"""Defining a topology out of a stranger's program, in a process that has nothing of value.

`define` is `heronpy.loader.define` for a program that came over the network, as a zip archive. User code runs in a
child process: without this process's environment, in a scratch directory, bounded in time, memory and size of files,
and as another user if this one is root and one is named. What it leaves running is killed.

Nothing that the child had its hands on is used afterwards but the definition, which is data. The code that will run on
the cluster is taken from the archive as it came, so that user code which turns its files into links to this user's keys
gets none of them packed.
"""

from heronpy.sandbox._archive import check_archive
from heronpy.sandbox._define import Limits, Program, define

__all__ = ["Limits", "Program", "check_archive", "define"]
