"""What Kubernetes says of a container, in the words of the SPI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from heron_scheduler._spi import ContainerPhase, ContainerStatus
from heron_scheduler.kubernetes._manifests import role_of

HOPELESS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
)
"""Reasons of a waiting container that do not go away by themselves."""
_ENGINE = (role_of(0), role_of(1))
_WORDS_MAX = 300
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
        phase, reason = ContainerPhase.RUNNING, _last_end(status)
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
    for ended in _ends(status):
        from heronpy.container import is_unusable  # here: most commands see none that has ended

        if ended.get("reason") in _NOT_STARTED or is_unusable(ended.get("exitCode", 0), _said(ended)):
            return _how(ended)
    return ""


def _ends(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """How the engine's container has ended last; those beside it are the user's, and Kubernetes'."""
    for one in status.get("containerStatuses") or []:
        last = [(one.get(state) or {}).get("terminated") for state in ("state", "lastState")]
        if one.get("name") in _ENGINE and (ended := next(filter(None, last), None)):
            yield ended


def _said(ended: Mapping[str, Any]) -> str:
    return str(ended.get("message") or "").strip().rpartition("\n")[2]


def _how(ended: Mapping[str, Any]) -> str:
    return _said(ended)[:_WORDS_MAX] or _words(ended.get("reason"), f"exit code {ended.get('exitCode')}")


def _last_end(status: Mapping[str, Any]) -> str:
    """How it has ended before it was started again; empty: it has not, or on purpose."""
    return next((_how(ended) for ended in _ends(status) if ended.get("exitCode")), "")


def _waiting_for(status: Mapping[str, Any]) -> str:
    for one in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])):
        state = one.get("state") or {}
        for why in (state.get("waiting"), state.get("terminated")):
            if why:
                # In a back-off Kubernetes' own message says for how long, and not why.
                return _words(why.get("reason"), _last_end(status) or why.get("message"))
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
    return ": ".join(filter(None, (reason, " ".join((message or "").split())[:_WORDS_MAX])))
