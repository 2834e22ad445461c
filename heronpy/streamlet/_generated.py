"""Sources of elements that code makes: generators and plain functions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from heronpy.api.state import HashMapState
from heronpy.connectors import Record, Source, SourceContext, SourceReader
from heronpy.streamlet.context import Context
from heronpy.streamlet.generator import Generator


class _Context(Context):
    """The context of a generator."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._state = HashMapState()

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

    def get_state(self) -> HashMapState:
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


class GeneratorSource(Source):
    """The elements of a Generator."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def open(self, context: SourceContext) -> SourceReader:
        self._generator.setup(_Context(context))
        return _Made(self._generator.get)


class SupplierSource(Source):
    """The results of a function."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def open(self, context: SourceContext) -> SourceReader:
        return _Made(self.function)
