"""What an executor looks after beside its processes, if its container has a directory of its own."""

from __future__ import annotations

from typing import Protocol

from heronpy.plan import PackingPlan


class Beside(Protocol):
    """Anything."""

    def tick(self, now_ms: float) -> None:
        """Called about once a second. Must not block."""


class Codes(Protocol):
    """The user's code, as far as it has to be fetched."""

    def has(self, plan: PackingPlan) -> bool:
        """Whether the code is there that the container is to run."""

    def follow(self, plan: PackingPlan, *, settled: bool) -> None:
        """Fetch what a plan needs, and remove the rest as soon as the processes are those of the plan (`settled`)."""

    def tick(self, now_ms: float) -> bool:
        """Called about once a second. Whether `has` may have changed. Must not block."""

    def close(self) -> None:
        """End what was started."""


class BeforeEnd(Protocol):
    """What is done before the container ends because somebody says so; its processes go on until it is over."""

    def begin(self, now_ms: float) -> None:
        """Called once. Must not block."""

    def over(self, now_ms: float) -> bool:
        """Whether the container may end; asked again and again. Must not block."""

    def close(self) -> None:
        """End what was started."""
