"""How often a process tries to reach a ZooKeeper that is away."""

from __future__ import annotations

import random

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.retry import KazooRetry

from heronpy.statemgr.zookeeper import RECONNECT


class Enough(Exception):
    """The test has seen enough attempts."""


def test_the_pauses_between_attempts_never_shrink_to_a_busy_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kazoo.retry.random", random.Random(7))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5000:
            raise Enough

    def refused() -> None:
        raise ConnectionLoss

    with pytest.raises(Enough):
        KazooRetry(sleep_func=sleep, **RECONNECT)(refused)
    assert min(pauses) > 0.05
    assert max(pauses) < 0.5
