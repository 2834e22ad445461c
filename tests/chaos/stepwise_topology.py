"""Numbers that are counted by key, effectively once, while signals are sent at steps of checkpoints and restores.

A test lays down which process gets which signal when a step is reached; the first task that reaches it sends them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from counting_topology import Count, Middle, Source

from heronpy.api import Grouping, TopologyBuilder, TopologyContext, Tuple

OWN = "own"
"""Stands for the process that reaches the step."""


def send_at(directory: Path, step: str, signals: Mapping[int | str, int]) -> None:
    """Have signals sent to processes, once, when a step is reached."""
    new = directory / f"{step}.new"
    new.write_text(json.dumps([*signals.items()]))
    new.replace(directory / f"at-{step}")


def is_reached(directory: Path, step: str) -> bool:
    """Whether they were sent."""
    return not (directory / f"at-{step}").exists()


def reach(directory: Path, step: str) -> None:
    """The task is at a step."""
    taken = directory / f"taken-{step}-{os.getpid()}"
    try:
        (directory / f"at-{step}").rename(taken)
    except FileNotFoundError:
        return
    for pid, signum in json.loads(taken.read_text()):
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(os.getpid() if pid == OWN else int(pid), signum)


class Noticed:
    """A value that notices when it is written to a checkpoint."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __reduce__(self) -> tuple[Any, ...]:
        reach(self.directory, "snapshot")
        return Noticed, (self.directory,)


class CountStepwise(Count):
    """Counts, and reaches the steps `marker`, `snapshot`, `post-save`, `pre-restore` and `restore`."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.directory = Path(config["chaos.dir"])
        super().initialize(config, context)
        self.noticed = context.keyed_state("noticed")
        reach(self.directory, "restore")

    def process(self, tup: Tuple) -> None:
        self.noticed[tup.values[0]] = Noticed(self.directory)
        super().process(tup)

    def pre_save(self, checkpoint_id: str) -> None:
        reach(self.directory, "marker")
        super().pre_save(checkpoint_id)

    def post_save(self, checkpoint_id: str) -> None:
        reach(self.directory, "post-save")
        super().post_save(checkpoint_id)

    def pre_restore(self, checkpoint_id: str) -> None:
        reach(self.directory, "pre-restore")


def counting_stepwise(name: str, directory: Path) -> type[Any]:
    """`source` → `middle` (shuffle) → `count` (fields), two tasks each in two containers."""
    builder = TopologyBuilder(name)
    source = builder.add_spout("source", Source, 2)
    middle = builder.add_bolt("middle", Middle, 2, {source: Grouping.SHUFFLE})
    builder.add_bolt("count", CountStepwise, 2, {middle: Grouping.fields("key")})
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 0.5,
            "topology.stmgrs": 2,
            "chaos.dir": str(directory),
        }
    )
    return builder.build()
