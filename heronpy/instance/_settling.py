"""Whether a bolt says what it is done with, effectively once.

There acks are not sent, and Heron's stateful bolts do not ack. But one that does may hold tuples for longer than
`process()` takes, in a list or another thread, and what it holds at a snapshot would be in no state. So the tuples of a
bolt that acks at all must be settled before its snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType

from heronpy.api.bolt import Bolt


def settles_tuples(bolt: type) -> bool:
    """Whether the code of a bolt acks tuples: whether it has that name anywhere, `Bolt` itself aside."""
    if getattr(bolt, "auto_ack", False):
        return True
    ancestors = [cls for cls in bolt.__mro__ if cls not in Bolt.__mro__]
    functions = (value for cls in ancestors for value in vars(cls).values() if isinstance(value, FunctionType))
    return any("ack" in code.co_names for function in functions for code in _codes(function.__code__))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
