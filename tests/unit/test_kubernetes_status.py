"""What the scheduler says of a container by what Kubernetes says of its pod."""

from __future__ import annotations

from typing import Any

import pytest
from heron_scheduler import ContainerPhase
from heron_scheduler.kubernetes import status_of


def pod(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "heron-words-1-0"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "containerStatuses": [container]},
    }


def ended(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


WORDS = "heron: this host has Python 3.2"
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        ({"state": ended(2, f"heron: x\n{WORDS}\n")}, WORDS),
        ({"state": BACK_OFF, "lastState": ended(2, WORDS)}, WORDS),
        ({"state": ended(127, "sh: 1: exec: python3: not found")}, "sh: 1: exec: python3: not found"),
        ({"state": ended(1, "/bin/python3: No module named heronpy")}, "/bin/python3: No module named heronpy"),
        ({"state": ended(128, "no such file: /bin/sh", "StartError")}, "no such file: /bin/sh"),
        ({"state": ended(127)}, "Error: exit code 127"),
    ],
)
def test_what_its_image_cannot_run_has_failed(container: dict[str, Any], reason: str) -> None:
    status = status_of(1, [pod(**container)], "")
    assert (status.phase, status.reason) == (ContainerPhase.FAILED, reason)


@pytest.mark.parametrize(
    "container", [{"state": ended(75, "to be tried again")}, {"state": BACK_OFF, "lastState": ended(137)}]
)
def test_what_kubernetes_starts_again_is_waited_for(container: dict[str, Any]) -> None:
    assert status_of(1, [pod(**container)], "").phase is ContainerPhase.PENDING


def test_what_runs_again_has_not_failed() -> None:
    container = {"state": {"running": {}}, "lastState": ended(2, WORDS)}
    assert status_of(1, [pod(**container)], "").phase is ContainerPhase.RUNNING
