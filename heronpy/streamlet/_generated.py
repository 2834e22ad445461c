"""Sources of elements that code makes: generators and plain functions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from heronpy.api.state import HashMapState, State
from heronpy.connectors import Record, Source, SourceContext, SourceReader
from heronpy.streamlet.context import Context
from heronpy.streamlet.generator import Generator


class _Context(Context):
    """The context of a generator."""

    def __init__(self, context: SourceContext, state: State) -> None:
        self._context = context
        self._state = state

    def get_task_id(self) -> int:
        return self._context.task_index

    def get_config(self) -> dict[str, Any]:
        return self._context.config

    def get_stream_name(self) -> str:
        return self._context.name

    def get_num_partitions(self) -> int:
        return self._context.num_tasks

    def get_partition_index(self) -> int:
        return self._context.task_index

    def get_state(self) -> State:
        return self._state

    def emit(self, values: list[Any]) -> None:
        raise TypeError("a generator returns its elements from get()")


class _Made(SourceReader):
    """Calls a function for each element, one per `read`: it may take its time, or sleep."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._life = uuid.uuid4().hex
        self._count = 0

    def read(self, limit: int) -> Sequence[Record]:
        element = self._make()
        if element is None:
            return ()
        self._count += 1
        return (Record(element, time.time_ns() // 1_000_000, f"{self._life}:{self._count}"),)


class _Remembered(_Made):
    """The same, with ids that go on after a restore."""

    def __init__(self, make: Callable[[], Any], state: State) -> None:
        super().__init__(make)
        self._state = state
        self._life, self._count = state.get("ids", (self._life, 0))

    def read(self, limit: int) -> Sequence[Record]:
        records = super().read(limit)
        if records:
            self._state.put("ids", (self._life, self._count))
        return records


class GeneratorSource(Source):
    """The elements of a Generator."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def __repr__(self) -> str:
        return f"GeneratorSource({type(self._generator).__qualname__})"

    @property
    def stateful(self) -> bool:
        """Whether it can be read effectively once."""
        return self._generator.stateful

    def open(self, context: SourceContext) -> SourceReader:
        self._generator.setup(_Context(context, HashMapState()))
        return _Made(self._generator.get)

    def open_saved(self, context: SourceContext, state: State, ids: State) -> SourceReader:
        """Open it where checkpoints are taken.

        Args:
            context: as of `open`.
            state: the generator's.
            ids: for the ids of what it makes.
        """
        self._generator.setup(_Context(context, state))
        return _Remembered(self._generator.get, ids)


class SupplierSource(Source):
    """The results of a function."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def open(self, context: SourceContext) -> SourceReader:
        return _Made(self.function)
