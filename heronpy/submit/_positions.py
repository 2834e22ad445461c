"""Spouts that keep no position: effectively once they would lose at a rollback what is in flight."""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Iterator
from types import CodeType, FunctionType

from heronpy.api import Spout
from heronpy.api.state import StatefulComponent
from heronpy.config import ALLOW_LOSSY_SPOUTS, is_set
from heronpy.errors import ConfigError, NotFoundError, UserCodeError
from heronpy.plan import LogicalPlan

_DECLARING = frozenset(("keyed_state", "split_state", "task_state", "broadcast_state", "delegate"))


def check_positions(logical: LogicalPlan) -> None:
    """Refuse spouts of which is known here that they declare no state. Others are refused when they have declared none.

    Raises:
        ConfigError: there is one, and that is not allowed.
    """
    if is_set(logical.config, ALLOW_LOSSY_SPOUTS):
        return
    from heronpy.loader import load_class

    for component in logical.components.values():
        if not component.is_spout:
            continue
        with contextlib.suppress(NotFoundError, UserCodeError):  # it is not importable here, as a script is not
            if declares_nothing(load_class(component.class_name)):
                raise ConfigError(
                    f"{logical.name}: spout {component.name!r} keeps no position in a state, so a rollback would lose "
                    f"what is in flight: have it declare one, or set {ALLOW_LOSSY_SPOUTS} if that may be lost"
                )


def declares_nothing(spout: type) -> bool:
    """Whether a spout surely declares no state: it is given none, and does nothing with its context."""
    if issubclass(spout, StatefulComponent):
        return False
    functions = [
        value
        for cls in spout.__mro__
        if cls not in Spout.__mro__
        for value in vars(cls).values()
        if isinstance(value, FunctionType)
    ]
    if any(not _DECLARING.isdisjoint(code.co_names) for function in functions for code in _codes(function.__code__)):
        return False
    return not any(_uses_context(function.__code__) for function in functions if function.__name__ == "initialize")


def _uses_context(initialize: CodeType) -> bool:
    if initialize.co_argcount < 3:  # self, config, context
        return True
    context = initialize.co_varnames[2]
    return context in initialize.co_cellvars or any(
        each.argval == context for each in dis.get_instructions(initialize) if each.opname.startswith("LOAD_")
    )


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
