"""How checkpoints are taken, and why they fail."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heronpy.config import ALLOW_EMPTY_STATE, checkpoint_interval_s, is_set, takes_checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """How checkpoints are taken."""

    interval_s: float
    """From the beginning of a checkpoint to that of the next; a longer one delays its successor."""
    timeout_s: float = 600.0
    """A checkpoint that takes longer is aborted."""
    retained: int = 1
    """So many committed checkpoints are kept."""
    allow_empty: bool = False
    """Begin without state if no checkpoint can be restored."""

    @classmethod
    def of(cls, config: Mapping[str, Any], retained: int) -> CheckpointSettings | None:
        """What the configuration of a topology asks for; None: no checkpoints."""
        if not takes_checkpoints(config):
            return None
        return cls(
            interval_s=checkpoint_interval_s(config),
            timeout_s=float(config.get("topology.stateful.checkpoint.timeout.seconds", 600.0)),
            retained=retained,
            allow_empty=is_set(config, ALLOW_EMPTY_STATE),
        )

    def __post_init__(self) -> None:
        assert self.interval_s > 0
        assert self.timeout_s > 0
        assert self.retained >= 1


class Failure(enum.Enum):
    """Why a checkpoint was aborted; the names are for users."""

    TASK = "a task failed"
    TIMEOUT = "timed out"
    LOSS = "tuples may be lost or repeated"
    SESSION = "a Stream Manager was disconnected"
    STORAGE = "its manifest could not be stored"
    STORE = "the state manager failed"
    LEADER = "the Topology Master was replaced"
    IN_FLIGHT = "batches in flight cannot be divided among other tasks"
    UNDIVIDED = "state cannot be divided among the tasks that are decided upon"
