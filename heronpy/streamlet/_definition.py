"""What travels from a program to its tasks, pickled, in the configuration of each component."""

from __future__ import annotations

import io
import os
import pickle
import sys
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from heronpy.api.topology import OPTIONS_ENV
from heronpy.errors import TopologyError, UserCodeError
from heronpy.filesystem import Location
from heronpy.shown import said
from heronpy.streamlet._stages import Stage

STAGE_KEY = "streamlet.stage"
"""Configuration key of a component: its pickled Definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A stage, and what its tasks know of the program's configuration."""

    stage: Stage
    directory: Location | None
    batch_length_ms: int
    max_lateness_ms: int
    idle_timeout_ms: int


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Functions of a script by value, its classes by name.

    A script's `__main__` block does not run in a task, so a function that was defined there must be sent along. Its
    classes must not: each stage would get a class of its own, and isinstance() would fail between them. Only `heron
    submit` has the tasks import the script, though; where a script submits itself, its classes go along, too.
    """

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=5)
        self.modules: set[str] = set()
        """Those that what is pickled comes from, also what is pickled by value: it may import beside its module."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType):
            self.modules.add(obj.__name__)
        elif isinstance(obj, (type, FunctionType)) and isinstance(obj.__module__, str):
            self.modules.add(obj.__module__)
        if isinstance(obj, type) and obj.__module__ == "__main__" and _found(obj):
            return NotImplemented  # pickle's own way: by name
        return super().reducer_override(obj)


def _found(obj: type) -> bool:
    """Whether tasks will find a class of `__main__` by its name."""
    if OPTIONS_ENV not in os.environ:
        return False
    found: Any = sys.modules.get("__main__")
    for name in obj.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is obj


def dumps(definition: Definition) -> tuple[bytes, frozenset[str]]:
    """A definition as bytes, and the modules that its functions and classes come from.

    Raises:
        TopologyError: something in it cannot be pickled.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    try:
        pickler.dump(definition)
    except Exception as e:
        # Pickling runs the user's code, which may raise anything.
        raise TopologyError(
            f"{definition.stage.name} cannot be sent to its tasks: {said(e)}; "
            "open files, connections and locks must be made where they are used"
        ) from e
    return buffer.getvalue(), frozenset(pickler.modules)


def loads(config: dict[str, Any]) -> Definition:
    """The definition in a component's configuration.

    Raises:
        UserCodeError: it cannot be unpickled.
    """
    try:
        definition = pickle.loads(config[STAGE_KEY])
    except Exception as e:
        raise UserCodeError(f"the stage cannot be unpickled: {said(e)}") from e
    assert isinstance(definition, Definition)
    return definition
