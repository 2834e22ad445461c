"""An object store in memory, with drivers of batch runs that meet a fault at one of their calls.

What a store may do to a driver is done between its call and the objects: the call is refused, or done and said to have
failed, its driver dies before or after it, or another driver comes and does everything while the call is on its way.
All in one process and without Spark (`inline_spark`), so every call of a run can meet every fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from heronpy.checkpoints import CheckpointStorage, Listed, check_storage_name
from heronpy.errors import NotFoundError, UnavailableError

T = TypeVar("T")
FAULTS = ("refused", "done, and refused", "killed before", "killed after", "overtaken before", "overtaken after")


class Killed(BaseException):
    """A driver is dead: nothing that it still tries is done."""


@dataclass
class Objects:
    """What is stored: content, and the number and the time of the write that has made it."""

    contents: dict[str, tuple[bytes, int, float]] = field(default_factory=dict)
    writes: int = 0

    def put(self, name: str, data: bytes) -> None:
        self.writes += 1
        self.contents[check_storage_name(name)] = data, self.writes, time.time()

    def copied(self) -> Objects:
        return Objects(dict(self.contents), self.writes)


class Driver(CheckpointStorage):
    """The store as one driver sees it."""

    def __init__(
        self,
        objects: Objects,
        *,
        at: int = 0,
        fault: str = "",
        repeat: int = 1,
        overtake: Callable[[], None] | None = None,
    ) -> None:
        """Describe what it meets.

        Args:
            objects: what is stored.
            at: the number of the call that meets the fault; 0: none.
            fault: one of FAULTS; empty: none.
            repeat: so many calls do.
            overtake: what another driver does.
        """
        self.objects, self.calls = objects, list[str]()
        self._at, self._fault, self._repeat, self._overtake = at, fault, repeat, overtake
        self._dead = False

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        data = b"".join(chunks)
        self._call(f"put {name}", lambda: self.objects.put(name, data))

    def create(self, name: str, data: bytes) -> bool:
        def create() -> bool:
            if name not in self.objects.contents:
                self.objects.put(name, data)
            return self.objects.contents[name][0] == data

        return self._call(f"create {name}", create)

    def size(self, name: str) -> int:
        return self._call(f"size {name}", lambda: len(self._content(name)))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        end = None if length is None else offset + length
        return self._call(f"read {name}", lambda: self._content(name)[offset:end])

    def names(self, prefix: str = "") -> list[str]:
        return [one.name for one in self.listed(prefix)]

    def listed(self, prefix: str = "") -> list[Listed]:
        def listed() -> list[Listed]:
            found = sorted(item for item in self.objects.contents.items() if item[0].startswith(prefix))
            return [Listed(name, len(data), str(number), at_s) for name, (data, number, at_s) in found]

        return self._call(f"list {prefix}", listed)

    def copy(self, name: str, to: str) -> None:
        self._call(f"copy {name}", lambda: self.objects.put(to, self._content(name)))

    def delete(self, names: Iterable[str]) -> None:
        gone = list(names)
        self._call(f"delete {' '.join(gone)[:80]}", lambda: [self.objects.contents.pop(name, None) for name in gone])

    def _content(self, name: str) -> bytes:
        if name not in self.objects.contents:
            raise NotFoundError(f"there is no {name}")
        return self.objects.contents[name][0]

    def _call(self, what: str, do: Callable[[], T]) -> T:
        self.calls.append(what)
        if self._dead:
            raise Killed(what)
        number = len(self.calls)
        if not self._fault or not self._at <= number < self._at + self._repeat:
            return do()
        if self._fault == "refused":
            raise UnavailableError(f"{what}: refused")
        if self._fault == "killed before":
            self._dead = True
            raise Killed(what)
        if self._fault == "overtaken before":
            self._come()
        done = do()
        if self._fault == "done, and refused":
            raise UnavailableError(f"{what}: refused")
        if self._fault == "killed after":
            self._dead = True
            raise Killed(what)
        if self._fault == "overtaken after":
            self._come()
        return done

    def _come(self) -> None:
        assert self._overtake is not None
        self._overtake()
