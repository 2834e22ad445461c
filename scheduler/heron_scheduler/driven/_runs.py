"""What a driver does about its containers. Pure: orders and runs in, actions out."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from heron_scheduler._spi import ContainerPhase
from heron_scheduler.driven._orders import Orders


@dataclass(slots=True)
class Run:
    """One start of a container on the cluster, which may be over."""

    id: str
    generation: int
    phase: ContainerPhase = ContainerPhase.PENDING
    over: bool = False
    host: str = ""
    reason: str = ""
    retry_s: float | None = None
    """When it is run again, if it is over: by the cluster's fault, not on purpose."""
    end_by_s: float | None = None
    """When it is killed, if it does not end gracefully."""


def next_run(before: Run | None, id: str, generation: int) -> Run:
    """The next start of a container. If the one before it failed, why stays known until this one has come up."""
    failed = before is not None and before.over and before.retry_s is not None
    return Run(id, generation, reason=before.reason if before is not None and failed else "")


class Action(enum.Enum):
    """What is to be done about a container."""

    START = "start"
    END = "end"
    CANCEL = "cancel"
    FORGET = "forget"


def decide(orders: Orders, runs: Mapping[int, Run], now_s: float) -> list[tuple[Action, int]]:
    """What is to be done now. A container whose order has changed is ended first, and started once that is over."""
    actions = []
    for n in sorted(orders.containers.keys() | runs.keys()):
        order = None if orders.stop else orders.containers.get(n)
        run = runs.get(n)
        if run is None:
            if order is not None:
                actions.append((Action.START, n))
        elif run.over:
            if order is None:
                actions.append((Action.FORGET, n))
            elif order.generation != run.generation or (run.retry_s is not None and now_s >= run.retry_s):
                actions.append((Action.START, n))
        elif order is None or order.generation != run.generation:
            if run.end_by_s is None:
                actions.append((Action.END, n))
            elif now_s >= run.end_by_s:
                actions.append((Action.CANCEL, n))
    return actions
