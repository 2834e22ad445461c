"""What Kubernetes says of a container, in the words of the SPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heron_scheduler._spi import ContainerPhase, ContainerStatus

HOPELESS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
)
"""Reasons of a waiting container that do not go away by themselves."""
_NOT_STARTED = ("StartError", "ContainerCannotRun")
"""Reasons of one that has ended because the image has no such command."""


def status_of(container: int, pods: Sequence[Mapping[str, Any]], trouble: str) -> ContainerStatus:
    """The status of a container.

    Args:
        container: Its number.
        pods: Its pods: one, or none, or one that ends.
        trouble: Why there is none, if that is known.
    """
    if not pods:
        return ContainerStatus(container=container, phase=ContainerPhase.PENDING, reason=trouble)
    pod = pods[0]
    status = pod.get("status") or {}
    phase, reason = ContainerPhase.PENDING, ""
    if pod["metadata"].get("deletionTimestamp"):
        phase = ContainerPhase.ENDING
    elif any("running" in (c.get("state") or {}) for c in status.get("containerStatuses") or []):
        phase = ContainerPhase.RUNNING
    elif reason := _unusable(status):
        phase = ContainerPhase.FAILED
    else:
        reason = _waiting_for(status)
    return ContainerStatus(
        container=container,
        phase=phase,
        host=pod["spec"].get("nodeName", ""),
        job=pod["metadata"]["name"],
        reason=reason,
    )


def _unusable(status: Mapping[str, Any]) -> str:
    """Why its image cannot run the container, however often Kubernetes tries; empty: none is known."""
    for one in status.get("containerStatuses") or []:
        last = [(one.get(state) or {}).get("terminated") for state in ("state", "lastState")]
        if ended := next(filter(None, last), None):
            from heronpy.container import is_unusable  # here: most commands see none that has ended

            said = (ended.get("message") or "").strip().rpartition("\n")[2]
            if ended.get("reason") in _NOT_STARTED or is_unusable(ended.get("exitCode", 0), said):
                return said or _words(ended.get("reason"), f"exit code {ended.get('exitCode')}")
    return ""


def _waiting_for(status: Mapping[str, Any]) -> str:
    for one in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])):
        state = one.get("state") or {}
        for why in (state.get("waiting"), state.get("terminated")):
            if why:
                return _words(why.get("reason"), why.get("message"))
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _words(condition.get("reason"), condition.get("message"))
    return _words(status.get("reason"), status.get("message"))


def trouble_of(stateful_set: str, events: Sequence[Mapping[str, Any]]) -> str:
    """Why a StatefulSet's pod was not made, by the newest event that says so; empty: none does."""
    own = [e for e in events if (e.get("involvedObject") or {}).get("name") == stateful_set]
    newest = max(own, key=lambda e: e.get("lastTimestamp") or e.get("eventTime") or "", default=None)
    return _words("", newest.get("message")) if newest else ""


def _words(reason: str | None, message: str | None) -> str:
    return ": ".join(filter(None, (reason, " ".join((message or "").split())[:300])))
