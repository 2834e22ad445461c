"""Pods on nodes that are gone.

A pod that is deleted while its node is out of reach stays until the node says that it has ended, and as long as it is
there, its StatefulSet starts no other: Kubernetes cannot know whether it still runs. For a topology that does not
matter (a container that comes back from the dead has an old incarnation and is refused), so such pods are removed.
Where nodes are deleted with their machines, as most clouds do, Kubernetes does the same by itself.

`python -m heron_scheduler.kubernetes.lost_pods` does so for a namespace, again and again; commands do it by the way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from heronpy.kubernetes import Api, KubernetesError

log = logging.getLogger(__name__)

OVERDUE_S = 10.0
"""A pod that has not ended this long after its grace time is on a node that Kubernetes does not reach."""

EVICTED_S = 2.0
"""How long a pod that Kubernetes has deleted because of its node may take, if it is not ready."""


def release_lost_pods(api: Api, namespace: str, selector: str) -> list[str]:
    """Remove the pods that should have ended and have not. Returns their names.

    Raises:
        KubernetesError: the API server refuses, or does not answer.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    answer = api.get(path, query={"labelSelector": selector})
    released = []
    for pod in answer.body["items"]:
        if not is_lost(pod, answer.server_s):
            continue
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        try:
            api.call("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
        except KubernetesError as e:
            if e.status not in (404, 409):  # else it is gone, or another one already
                raise
        else:
            log.warning("pod %s is removed: its node %s does not answer", name, pod["spec"].get("nodeName"))
            released.append(name)
    return released


def is_lost(pod: Mapping[str, Any], now_s: float) -> bool:
    """Whether a pod that is to end is on a node that cannot say so.

    Either its grace time is long over, or Kubernetes itself has deleted it because of its node (which it says in the
    condition DisruptionTarget) and does not take it for ready: then no process is there to use the grace time.
    """
    metadata = pod["metadata"]
    if not metadata.get("deletionTimestamp"):
        return False
    # The API server adds the grace time to the time of the deletion.
    due_s = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp()
    if now_s > due_s + OVERDUE_S:
        return True
    conditions = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or []}
    evicted = conditions.get("DisruptionTarget", {}).get("reason") == "DeletionByTaintManager"
    ready = conditions.get("Ready", {}).get("status") == "True"
    return evicted and not ready and now_s > due_s - metadata.get("deletionGracePeriodSeconds", 0) + EVICTED_S
