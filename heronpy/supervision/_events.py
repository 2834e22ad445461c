"""The events that a supervisor receives, and the effects that it asks for."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Wanted(Struct, frozen=True):
    """These processes, with their stages, are to run; all others are to end."""

    stages: Mapping[str, int]
    now_ms: float


class Found(Struct, frozen=True):
    """A process runs that an earlier supervisor started. It is wanted until the next `Wanted` leaves it out."""

    id: str
    stage: int
    pid: int
    now_ms: float


class Started(Struct, frozen=True):
    """A process runs: the answer to `Start`."""

    id: str
    pid: int
    now_ms: float


class StartFailed(Struct, frozen=True):
    """The operating system refused to start a process."""

    id: str
    now_ms: float


class Exited(Struct, frozen=True):
    """A process is dead, whatever killed it."""

    id: str
    pid: int
    now_ms: float


class Hung(Struct, frozen=True):
    """A process makes no progress (`HangDetector`)."""

    id: str
    pid: int
    stopped: bool
    """By SIGSTOP: it cannot write its stacks."""
    now_ms: float


class RestartRequested(Struct, frozen=True):
    """A user wants these processes ended and started again, without a pause."""

    ids: tuple[str, ...]
    now_ms: float


class StopRequested(Struct, frozen=True):
    """Everything is to end, stage by stage. There is no way back."""

    now_ms: float


class Ticked(Struct, frozen=True):
    """Time has passed."""

    now_ms: float


Event = Wanted | Found | Started | StartFailed | Exited | Hung | RestartRequested | StopRequested | Ticked


class Start(Struct, frozen=True):
    """Start it, and answer with `Started` or `StartFailed`."""

    id: str


class Terminate(Struct, frozen=True):
    """Ask it to end: SIGTERM."""

    id: str
    pid: int


class DumpStacks(Struct, frozen=True):
    """It is hung: have it write its stacks (SIGUSR1). `Kill` follows."""

    id: str
    pid: int


class Kill(Struct, frozen=True):
    """It did not end in time, or is hung: SIGKILL to it and to all of its process group."""

    id: str
    pid: int


Effect = Start | Terminate | DumpStacks | Kill
