"""The command line: `heron VERB …`. Thin: every verb parses, calls `heronpy.submit` and prints."""

import signal
from collections.abc import Sequence

__all__ = ["main", "run"]


def main(*words: str) -> None:
    """Run the command line of this process, after these words if there are any, and exit."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        # Until a command runs there is nothing to undo: an interrupt ends it as any program, without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from heronpy.cli import _app

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _app.main(*words)


def run(args: Sequence[str]) -> int:
    """Run one command. Returns its exit code; an error is one line on stderr."""
    from heronpy.cli import _app

    return _app.run(args)
