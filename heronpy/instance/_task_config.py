"""What the configuration says about a task, typed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from heronpy.config import ReliabilityMode, takes_checkpoints
from heronpy.plan import Component

PICKLE: Final = "pickle"
"""In place of the dotted path of a serializer."""
_WINDOWS_HOLD: Final = "topology.component.windows.hold.tuples"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """The keys of the topology and of the component that the engine itself reads."""

    reliability: ReliabilityMode = ReliabilityMode.ATMOST_ONCE
    """What is promised for a tuple."""
    message_timeout_ns: int = 30_000_000_000
    """A tree that takes longer is failed; 0: never."""
    max_spout_pending: int | None = None
    """Most trees on their way; None: follow the rate of acks."""
    holds_tuples: bool = False
    """Whether some bolt of the topology declares that it acks long after it got a tuple."""
    windows_hold: bool = False
    """Whether the component has windows that hold tuples, which are not to time out meanwhile."""
    fail_only: bool = False
    """Whether an exception of user code only fails its tuple, instead of ending the process. Never effectively once:
    a tuple cannot be replayed alone."""
    debug: bool = False
    """Whether every emitted tuple is logged."""
    serializer: str = PICKLE
    """Its dotted path, or `PICKLE`."""
    hooks: tuple[str, ...] = ()
    """Dotted paths of the task hooks."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], components: Iterable[Component] = ()) -> TaskConfig:
        """Read the settings of a component, which include the topology's.

        Args:
            settings: typed values by key.
            components: all components of the topology.
        """
        reliability = ReliabilityMode.of(settings)
        timeouts = _flag(settings.get("topology.enable.message.timeouts", True))
        pending = settings.get("topology.max.spout.pending")
        holding = ["topology.component.holds.tuples"]
        if not takes_checkpoints(settings):
            holding.append(_WINDOWS_HOLD)
        return cls(
            reliability=reliability,
            message_timeout_ns=int(float(settings.get("topology.message.timeout.secs", 30)) * 1e9) if timeouts else 0,
            max_spout_pending=None if pending in (None, "") else int(pending),
            holds_tuples=any(_flag(c.config.get(key)) for c in components for key in holding),
            windows_hold=_WINDOWS_HOLD in holding and _flag(settings.get(_WINDOWS_HOLD)),
            fail_only=settings.get("topology.exception.policy", "restart") == "fail"
            and reliability is not ReliabilityMode.EFFECTIVELY_ONCE,
            debug=_flag(settings.get("topology.debug", False)),
            serializer=serializer_of(settings),
            hooks=_paths(settings.get("topology.auto.task.hooks")),
        )


def serializer_of(settings: Mapping[str, Any]) -> str:
    """The dotted path of what writes and reads values, or `PICKLE`."""
    return str(settings.get("topology.serializer.classname") or PICKLE)


def tick_interval_ns(settings: Mapping[str, Any]) -> int:
    """Time between two ticks; 0: none. Read after initialize(), which may set it: Heron's window bolts do."""
    if (ms := settings.get("topology.tick.tuple.freq.ms")) is not None:
        return int(float(ms) * 1e6)
    if (secs := settings.get("topology.tick.tuple.freq.secs")) is not None:
        return int(float(secs) * 1e9)
    return 0


def _flag(value: Any) -> bool:
    return str(value).lower() == "true"


def _paths(value: Any) -> tuple[str, ...]:
    if not value:
        return ()
    return tuple(str(v) for v in value) if isinstance(value, (list, tuple)) else tuple(p for p in value.split(",") if p)
