"""Received tuples that cannot be deserialized: finding them among the others of their batch.

Many tuples are one pickle, and a class that raises in its `__setstate__`, or is missing here, ends the reading of all.
To know which of them is to blame, the pickle is taken apart, without running what it says: which of its operations make
which of its items, and which item uses an object that another one has made. From that, any items can be pickled alone;
halves are tried, until those to blame stand alone. What tuples of one batch have in common is copied by that, which is
allowed, and only where something has failed: nothing is done per tuple otherwise.

*Rejected:* an Unpickler that puts something else in the place of what fails: user code would be called with it.
"""

from __future__ import annotations

import itertools
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heronpy.instance._set_aside import Unreadable
from heronpy.wire import MalformedBatch

_HEAD, _TAIL = pickle.PROTO + b"\x05" + pickle.EMPTY_LIST + pickle.MARK, pickle.APPENDS + pickle.STOP
_LEFT_OUT = frozenset(("PROTO", "FRAME", "STOP"))
_PUTS = frozenset(("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"))
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_GROWING = frozenset(("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"))
"""What changes an object that was made before, and leaves it on the stack."""


def read_each(data: bytes) -> list[Any]:
    """Read a pickled list in which something cannot be read: `Unreadable` takes the place of such items.

    Raises:
        ValueError: it is not a pickled list, or one that cannot be taken apart.
    """
    pickled = _PickledList(data)
    found: list[Any] = []
    todo = [(0, pickled.count)]
    while todo:
        start, stop = todo.pop()
        part = pickled.part(start, stop)
        try:
            found += pickle.loads(part)
        except BaseException as error:  # also sys.exit() in a __setstate__
            if stop - start == 1:
                found.append(Unreadable(part, error, pickled=True))
            else:
                middle = (start + stop) // 2
                todo += [(middle, stop), (start, middle)]
    return found


def read_alone(data: bytes, deserialize: Callable[[bytes], list[Any]]) -> list[Any]:
    """Read one tuple that was serialized alone. If it cannot be read, `Unreadable` takes its place."""
    try:
        values = deserialize(data)
        if len(values) != 1:
            raise MalformedBatch(f"one tuple was serialized, and {len(values)} were read")
    except BaseException as error:  # also sys.exit() in it
        return [Unreadable(data, error)]
    return values


@dataclass(slots=True, eq=False)
class _Made:
    """What is on the unpickler's stack, and the operations that make it."""

    start: int
    stop: int
    is_mark: bool = False


@dataclass(frozen=True, slots=True)
class _Put:
    number: int


@dataclass(frozen=True, slots=True)
class _Get:
    number: int


class _PickledList:
    """A pickled list, of which any items can be pickled alone."""

    def __init__(self, data: bytes) -> None:
        """Take it apart. Raises ValueError if that cannot be done."""
        self._operations: list[bytes | _Put | _Get] = []
        self._memo: dict[int, _Made] = {}
        self._items: list[_Made] = []
        try:
            self._take_apart(data)
        except (IndexError, KeyError, StopIteration) as error:
            raise ValueError("not a pickled list") from error

    @property
    def count(self) -> int:
        return len(self._items)

    def part(self, start: int, stop: int) -> bytes:
        """A pickle of some of the items, with all that these use of others."""
        written: list[bytes] = []
        numbers: dict[int, int] = {}
        """Objects that are in the memo by then are numbered anew, so that a part says nothing of its place."""
        todo = [(item.start, item.stop) for item in reversed(self._items[start:stop])]
        while todo:
            at, end = todo.pop()
            while at < end:
                operation = self._operations[at]
                at += 1
                if isinstance(operation, bytes):
                    written.append(operation)
                elif isinstance(operation, _Put):
                    number = numbers.setdefault(operation.number, len(numbers))
                    written.append(pickle.LONG_BINPUT + number.to_bytes(4, "little"))
                elif operation.number in numbers:
                    written.append(pickle.LONG_BINGET + numbers[operation.number].to_bytes(4, "little"))
                else:
                    todo.append((at, end))
                    made = self._memo[operation.number]
                    at, end = made.start, made.stop
        return b"".join((_HEAD, *written, _TAIL))

    def _take_apart(self, data: bytes) -> None:
        stack: list[_Made] = []
        ends: dict[int, int] = {}
        """By how much is on the stack: up to which operation it was so much."""
        operations = self._operations
        found = [*pickletools.genops(data)]
        positions = [position or 0 for _, _, position in found] + [len(data)]
        argument: Any
        for (operation, argument, _), (start, stop) in zip(found, itertools.pairwise(positions), strict=True):
            name, number = operation.name, len(operations)
            if name in _LEFT_OUT:
                continue
            if name in _PUTS:
                index = len(self._memo) if name == "MEMOIZE" else argument
                self._memo[index] = stack[-1]
                stack[-1].stop = number + 1
                operations.append(_Put(index))
            elif name in _GETS:
                stack.append(_Made(number, number + 1))
                operations.append(_Get(argument))
            else:
                taken = _taken(stack, operation)
                if name in ("APPEND", "APPENDS") and taken == len(stack):
                    first = 2 if stack[1].is_mark else 1
                    self._items += [_Made(ends[depth], ends[depth + 1]) for depth in range(first, taken)]
                _execute(stack, operation, taken, number)
                operations.append(data[start:stop])
            ends[len(stack)] = number + 1
        if len(stack) != 1 or operations[0] != pickle.EMPTY_LIST:
            raise ValueError("not a pickled list")


def _taken(stack: list[_Made], operation: pickletools.OpcodeInfo) -> int:
    """How much of the stack an operation takes."""
    before = operation.stack_before
    if pickletools.markobject not in before:
        return len(before)
    mark = next(at for at in reversed(range(len(stack))) if stack[at].is_mark)
    return len(stack) - mark + before.index(pickletools.markobject)


def _execute(stack: list[_Made], operation: pickletools.OpcodeInfo, taken: int, number: int) -> None:
    start = len(stack) - taken
    popped = stack[start:]
    del stack[start:]
    if operation.name in _GROWING:
        popped[0].stop = number + 1
        stack.append(popped[0])
    elif operation.stack_after:
        made = _Made(popped[0].start if popped else number, number + 1, is_mark=operation.name == "MARK")
        stack.append(made)
