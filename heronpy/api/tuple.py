"""What a bolt receives.

A tuple knows its values and its place in the batch that it came in; everything else (its stream, its component, its
roots) is kept once per batch. That keeps a tuple at about 50 ns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol

import msgspec


class Origin(Protocol):
    """What the tuples of one received batch share. The engine provides it."""

    @property
    def component(self) -> str: ...
    @property
    def stream(self) -> str: ...
    @property
    def task(self) -> int: ...
    @property
    def fields(self) -> Sequence[str]: ...

    def tuple_id(self, index: int) -> int:
        """The id of the tuple at `index`: unique among the tuples in flight, 0 where nothing is tracked."""
        ...


class Tuple(msgspec.Struct, gc=False, eq=False, weakref=False):
    """One tuple: `tup.values`, or by field name `tup["word"]`; `id, component, stream, task` say where it is from.

    Treat the values as immutable: tuples of one batch may share objects. Unpacks and indexes by position like Heron's
    namedtuple `(id, component, stream, task, values)`.
    """

    values: list[Any]
    """The values, in the order of the stream's fields."""
    origin_: Origin
    index_: int

    @property
    def id(self) -> str:
        """The tuple's id as text; empty where nothing is tracked."""
        number = self.origin_.tuple_id(self.index_)
        return f"{number:016x}" if number else ""

    @property
    def component(self) -> str:
        """Name of the component that emitted the tuple."""
        return self.origin_.component

    @property
    def stream(self) -> str:
        """Id of the stream that it was emitted to."""
        return self.origin_.stream

    @property
    def task(self) -> int:
        """Id of the task that emitted it."""
        return self.origin_.task

    @property
    def fields(self) -> Sequence[str]:
        """Names of the values, as the emitting component declared them."""
        return self.origin_.fields

    def __getitem__(self, key: str | int) -> Any:
        """The value of the field `key`; with a number, the position in `(id, component, stream, task, values)`."""
        if isinstance(key, str):
            try:
                return self.values[self.origin_.fields.index(key)]
            except ValueError:
                raise KeyError(
                    f"stream {self.component}:{self.stream} has no field {key!r}; it has {list(self.fields)}"
                ) from None
        return tuple(self)[key]

    def __contains__(self, field: object) -> bool:
        return field in self.origin_.fields

    def __iter__(self) -> Iterator[Any]:
        return iter((self.id, self.component, self.stream, self.task, self.values))

    def as_dict(self) -> dict[str, Any]:
        """Values by field name."""
        return dict(zip(self.fields, self.values, strict=False))

    def __repr__(self) -> str:
        return (
            f"Tuple(id={self.id!r}, component={self.component!r}, stream={self.stream!r}, "
            f"task={self.task}, values={self.values!r})"
        )

    def __reduce__(self) -> Any:
        # A tuple that is pickled (kept in a state, sent on inside a value) leaves its batch behind: it can be read,
        # but neither acked nor anchored to.
        detached = Detached(
            self.component, self.stream, self.task, tuple(self.fields), self.origin_.tuple_id(self.index_)
        )
        return Tuple, (self.values, detached, 0)


class Detached(msgspec.Struct, frozen=True):
    """The origin of a tuple that was made by hand or pickled, and of ticks: acking or failing it has no effect."""

    # What ack() and fail() write to: a byte that is never read, in a batch that is never settled.
    marks: ClassVar[bytearray] = bytearray(1)
    dirty: ClassVar[bool] = True

    component: str
    stream: str
    task: int
    fields: tuple[str, ...] = ()
    id: int = 0

    def tuple_id(self, _index: int) -> int:
        return self.id


class TupleHelper:
    """Names and constructors of the engine's own tuples."""

    TICK_TUPLE_ID = "__tick"
    TICK_SOURCE_COMPONENT = "__system"

    @staticmethod
    def make_tick_tuple() -> Tuple:
        """A tick: no values, stream `__tick`, component `__system`."""
        return Tuple([], Detached(TupleHelper.TICK_SOURCE_COMPONENT, TupleHelper.TICK_TUPLE_ID, -1), 0)
