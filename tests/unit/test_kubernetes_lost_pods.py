"""Which pods are taken for lost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from heron_scheduler.kubernetes import is_lost

DELETED_S = 1_000_000.0
GRACE_S = 30


def pod(*, deleted: bool = True, evicted: bool = False, ready: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "one"}
    if deleted:
        due = datetime.fromtimestamp(DELETED_S + GRACE_S, UTC)
        metadata |= {"deletionTimestamp": due.strftime("%Y-%m-%dT%H:%M:%SZ"), "deletionGracePeriodSeconds": GRACE_S}
    conditions = [{"type": "Ready", "status": str(ready)}]
    if evicted:
        conditions.append({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"})
    return {"metadata": metadata, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("found", "after_s", "lost"),
    [
        (pod(deleted=False, evicted=True), 10_000, False),
        (pod(), 0, False),
        (pod(), GRACE_S + 9, False),
        (pod(), GRACE_S + 11, True),
        (pod(evicted=True), 1, False),
        (pod(evicted=True), 3, True),
        (pod(evicted=True, ready=True), 3, False),
        (pod(evicted=True, ready=True), GRACE_S + 11, True),
    ],
)
def test_a_pod_is_lost_when_nobody_is_there_to_end_it(found: dict[str, Any], after_s: float, lost: bool) -> None:
    assert is_lost(found, DELETED_S + after_s) is lost
