"""What a topology promises for a tuple."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from heronpy.config._engine import MIB

CHECKPOINT_INTERVAL_KEY: Final = "topology.stateful.checkpoint.interval.seconds"
CHECKPOINT_INTERVAL_S: Final = 10.0
"""Its value, unless it is set."""

ALLOW_EMPTY_STATE: Final = "topology.state.allow.empty"
ALLOW_DROPPED_STATE: Final = "topology.state.allow.dropped"
ALLOW_LOSSY_SPOUTS: Final = "topology.state.allow.lossy.spouts"
START_CLEAN: Final = "topology.stateful.start.clean"
INEXACT_KEY: Final = "refused.effectively.once"
"""Configuration key of a component: why it cannot be effectively once, in a line, for submit to refuse it."""


class ReliabilityMode(enum.StrEnum):
    """Values of `topology.reliability.mode`."""

    ATMOST_ONCE = "ATMOST_ONCE"
    """Nothing is tracked: a tuple that is lost is gone."""
    ATLEAST_ONCE = "ATLEAST_ONCE"
    """Every tuple tree is tracked: what is lost or failed is reported to its spout, which may emit it again."""
    EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"
    """State and positions are saved together. Nothing is tracked by tuple, so it costs what at most once costs."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ReliabilityMode:
        """The mode that a topology's configuration asks for."""
        return cls(str(config.get("topology.reliability.mode", cls.ATMOST_ONCE)))

    @property
    def tracks_trees(self) -> bool:
        """Whether tuples carry ids, and bolts ack them to the spout."""
        return self is ReliabilityMode.ATLEAST_ONCE


def takes_checkpoints(config: Mapping[str, Any]) -> bool:
    """Whether a topology takes checkpoints: effectively once always, at least once if their interval is set."""
    mode = ReliabilityMode.of(config)
    if mode is ReliabilityMode.ATLEAST_ONCE:
        return config.get(CHECKPOINT_INTERVAL_KEY) is not None
    return mode is ReliabilityMode.EFFECTIVELY_ONCE


def checkpoint_interval_s(config: Mapping[str, Any]) -> float:
    """From the beginning of a checkpoint to that of the next, as a topology's configuration asks for."""
    return float(config.get(CHECKPOINT_INTERVAL_KEY, CHECKPOINT_INTERVAL_S))


def state_memory_bytes(config: Mapping[str, Any]) -> int | None:
    """What state by key may take of memory in each task, by a component's configuration; None: all that it needs."""
    megabytes = config.get("topology.state.memory.mb")
    return None if megabytes is None else int(megabytes) * MIB


def is_set(config: Mapping[str, Any], key: str) -> bool:
    """Whether a key of a topology that is a boolean is true; unless it is there, it is not."""
    return str(config.get(key, False)).lower() == "true"
