"""How the processes of a container that is not up yet speak and end: one line on stderr, and an exit code."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator

from heronpy.errors import ConfigError, HeronError, ReadFailedError, UnavailableError
from heronpy.executor import ReplacedError

TRY_AGAIN = 75
"""The exit code that asks for another attempt (`EX_TEMPFAIL`)."""
_UNUSABLE = frozenset({ConfigError.exit_code, 126, 127})
_NO_MODULE = "No module named"


def is_unusable(code: int, said: str) -> bool:
    """Whether a container that ended so is not to be started on that host again.

    There is no such Python, or one without heronpy; or host and topology do not fit, in their versions or clocks.

    Args:
        code: Its exit code.
        said: Its last line.
    """
    return code in _UNUSABLE or (code == 1 and _NO_MODULE in said)


@contextlib.contextmanager
def ending(name: str) -> Iterator[Callable[[str], None]]:
    """End this process by what the block raises; SIGTERM ends it with 0, too. Gives a function that says one line."""

    def say(text: str) -> None:
        print(f"heron: {name}: {text}", file=sys.stderr, flush=True)

    def end(*_: object) -> None:
        # Another one neither interrupts what is cleared up, nor kills the interpreter that has given up its handlers.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    try:
        yield say
    except ReplacedError as e:
        say(f"{e}; exiting")
        sys.exit(0)
    except (UnavailableError, ReadFailedError) as e:
        say(f"{e}; will be retried")
        sys.exit(TRY_AGAIN)
    except HeronError as e:
        say(str(e))
        sys.exit(e.exit_code)
    except OSError as e:
        say(f"{e.filename or 'system error'}: {e.strerror or e}; will be retried")
        sys.exit(TRY_AGAIN)
