"""What the scheduler says of a container by what Kubernetes says of its pod."""

from __future__ import annotations

from typing import Any

import pytest
from heron_scheduler import ContainerPhase
from heron_scheduler.kubernetes import remedy, status_of


def pod(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "heron-words-1-0"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "containerStatuses": [{"name": "executor", **container}]},
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
    ("container", "reason"),
    [
        ({"state": ended(75, "heron: will be retried")}, "Error: heron: will be retried"),
        ({"state": BACK_OFF, "lastState": ended(75, f"x\n{WORDS}\n")}, f"CrashLoopBackOff: {WORDS}"),
        (
            {"state": BACK_OFF, "lastState": ended(137, reason="OOMKilled")},
            "CrashLoopBackOff: OOMKilled: exit code 137",
        ),
        ({"state": BACK_OFF, "lastState": ended(0)}, "CrashLoopBackOff: back-off 10s restarting failed container"),
    ],
)
def test_what_kubernetes_starts_again_is_waited_for_and_says_how_it_ended(
    container: dict[str, Any], reason: str
) -> None:
    status = status_of(1, [pod(**container)], "")
    assert (status.phase, status.reason) == (ContainerPhase.PENDING, reason)


@pytest.mark.parametrize(("code", "reason"), [(2, WORDS), (75, WORDS), (0, "")])
def test_what_runs_again_has_not_failed_and_says_how_it_ended(code: int, reason: str) -> None:
    container = {"state": {"running": {}}, "lastState": ended(code, WORDS)}
    status = status_of(1, [pod(**container)], "")
    assert (status.phase, status.reason) == (ContainerPhase.RUNNING, reason)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("ErrImagePull: registry.test/no:1: not found", "heron.executor.docker.image"),
        ("ImagePullBackOff: Back-off pulling image", "heron.executor.docker.image"),
        ('secrets is forbidden: User "eve" cannot create resource "secrets"', "rbac.yaml"),
        ("pods is forbidden: exceeded quota: small, requested: requests.memory=1Gi", "topology.container.ram"),
        (
            'error looking up service account streams/robot: serviceaccount "robot" not found',
            "scheduler.serviceAccount",
        ),
        ("pods is forbidden: violates PodSecurity", "pod.template"),
        ("connection refused", ""),
    ],
)
def test_a_refusal_says_what_to_change(said: str, what: str) -> None:
    advised = remedy(said)
    assert advised.startswith("; ") if what else advised == ""
    assert what in advised


def test_how_a_container_beside_the_engine_has_ended_says_nothing_of_the_engine() -> None:
    beside = {"name": "proxy", "state": {"running": {}}, "lastState": ended(2, "proxy: bad flag")}
    assert status_of(1, [pod(**beside)], "").reason == ""
    assert status_of(1, [pod(name="proxy", state=ended(2, "proxy: bad flag"))], "").phase is ContainerPhase.PENDING
