"""From values to bytes: `serialized` turns the tuples taken from a pair into one or more byte strings, cuts what is too
large, and finds the one tuple to blame when a batch cannot be serialized."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from heronpy.config import InstanceConfig
from heronpy.errors import TupleError
from heronpy.instance._edges import Taken, Values
from heronpy.plan import Component
from heronpy.shown import message

Serialize = Callable[[list[Values]], bytes]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A tuple that cannot be sent."""

    index: int
    error: TupleError


Part = tuple[int, int, bytes]
"""Start, stop and serialized values of some of the tuples taken from a pair."""


def serialized(
    component: Component, taken: Taken, serialize: Serialize, config: InstanceConfig, *, apart: bool = False
) -> Iterator[Part | Rejected]:
    """The tuples as `(start, stop, bytes)` in order, and those that cannot be sent.

    A batch larger than `frame_bytes` is cut in two, again and again. If a batch cannot be serialized, its halves are
    tried, until the tuples to blame stand alone. `apart`: each is serialized alone.
    """
    first = 0
    for count, data in taken.parts:
        yield first, first + count, data
        first += count
    pending = [(first, taken.count)] if taken.values else []
    if apart:
        pending = [(at, at + 1) for at in reversed(range(first, taken.count))]
    while pending:
        start, stop = pending.pop()
        values = taken.values if stop - start == len(taken.values) else taken.values[start - first : stop - first]
        try:
            data = serialize(values)
        except BaseException as error:  # also sys.exit() in a __reduce__: what goes with it was taken out already
            if stop - start == 1:
                yield Rejected(start, _blame(component, taken.stream_of(start), values[0], serialize, error))
                continue
        else:
            if len(data) <= config.frame_bytes:
                yield start, stop, data
                continue
            if stop - start == 1:
                if len(data) <= config.tuple_bytes_max:
                    yield start, stop, data
                else:
                    too_large = _too_large(
                        component, taken.stream_of(start), values[0], len(data), serialize, config.tuple_bytes_max
                    )
                    yield Rejected(start, too_large)
                continue
        middle = (start + stop) // 2
        pending += [(middle, stop), (start, middle)]


def _blame(component: Component, stream: str, values: Values, serialize: Serialize, error: BaseException) -> TupleError:
    """Say which field of which stream cannot be serialized."""
    for position, value in enumerate(values):
        try:
            serialize([[value]])
        except BaseException as cause:
            field, kind = _field(component, stream, position), type(value).__qualname__
            return TupleError(
                f"{component.name} emitted a tuple on stream {stream!r} whose field {field} cannot be serialized: "
                f"{kind}: {message(cause)}"
            )
    return TupleError(
        f"{component.name} emitted a tuple on stream {stream!r} that cannot be serialized: {message(error)}"
    )


def _too_large(
    component: Component, stream: str, values: Values, size: int, serialize: Serialize, bytes_max: int
) -> TupleError:
    sizes = [len(serialize([[value]])) for value in values]
    largest = sizes.index(max(sizes)) if sizes else 0
    return TupleError(
        f"{component.name} emitted a tuple of {size} bytes on stream {stream!r}, more than "
        f"heron.instance.network.options.maximum.packetsize.bytes = {bytes_max}; its largest field is "
        f"{_field(component, stream, largest)}"
    )


def _field(component: Component, stream: str, position: int) -> str:
    fields = component.outputs[stream].fields
    return repr(fields[position]) if position < len(fields) else f"number {position}"


def pickled(values: list[Any]) -> bytes:
    """The default serialization: one pickle for the whole batch; cloudpickle for what pickle cannot (lambdas, …)."""
    try:
        return pickle.dumps(values, 5)
    except Exception:
        import cloudpickle  # costs 30 ms, and functions are rarely emitted

        return bytes(cloudpickle.dumps(values, 5))
