"""The objects of a topology, as a pure function of its packing plan, its launch values and its secrets."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from heron_scheduler.kubernetes._settings import Settings
from heron_scheduler.kubernetes._template import merged
from heronpy.executor import stop_limit_s
from heronpy.plan import Resources
from heronpy.runtime import Launch
from heronpy.usersecrets import MOUNT_ENV, kubernetes_reference

Object = dict[str, Any]

TOPOLOGY_LABEL = "heron/topology-id"
CONTAINER_LABEL = "heron/container"
BOOTSTRAP_KEY = "bootstrap.json"
UID = 10001
"""Whom containers run as, whatever the image says: a user without rights."""

# Below /run/heron, so that nothing of the image is hidden. `work` outlives a restart of the container in its pod.
_SECRET_DIR = "/run/heron/secret"
_WORK_DIR = "/run/heron/work"
_USER_SECRETS_DIR = "/run/heron/user-secrets"
# The kubelet's copy of a Secret belongs to root and is readable by the pod's group: a private copy is made of it.
# exec: the engine is the container's first process, and gets SIGTERM.
_START = f'umask 077 && cat {_SECRET_DIR}/{BOOTSTRAP_KEY} >{_WORK_DIR}/{BOOTSTRAP_KEY} && exec "$@"'
_LOST_NODE_S = 10
"""How long a pod stays bound to a node that is not ready, or out of reach (Heron's number; Kubernetes' is 300)."""


def role_of(container: int) -> str:
    return "manager" if container == 0 else "executor"


def job_name(launch: Launch) -> str:
    """What all objects of a submission begin with: readable as far as Kubernetes allows, and unique."""
    slug = re.sub(r"[^a-z0-9]+", "-", launch.topology.lower())[:24].strip("-")
    return "-".join(filter(None, ("heron", slug, _digest(launch))))


def container_name(launch: Launch, container: int) -> str:
    """The name of a container's StatefulSet and Secret."""
    return f"{job_name(launch)}-{container}"


def topology_selector(launch: Launch) -> str:
    """Selects everything of a submission."""
    return f"{TOPOLOGY_LABEL}={_digest(launch)}"


def service_object(launch: Launch, settings: Settings) -> Object:
    """The headless Service of a topology: its pods' names, and what its StatefulSets refer to."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job_name(launch),
            "namespace": settings.namespace,
            "labels": {**settings.service_labels, **_labels(launch)},
            "annotations": {**settings.service_annotations, **_annotations(launch)},
        },
        "spec": {"clusterIP": "None", "selector": _selector(launch), "publishNotReadyAddresses": True},
    }


def container_objects(
    container: int,
    resources: Resources,
    launch: Launch,
    settings: Settings,
    *,
    bootstrap: bytes,
    python: Sequence[str],
    template: Mapping[str, Any] | None = None,
) -> list[Object]:
    """The Secret and the StatefulSet of one container, in the order in which they are made.

    Args:
        container: Its number.
        resources: What the packing plan gives it.
        launch: The topology.
        settings: The scheduler's keys.
        bootstrap: The content of its bootstrap file.
        python: The beginning of the command that starts Python in the image.
        template: The user's pod template (a PodTemplateSpec).

    Raises:
        ConfigError: the template cannot be merged.
    """
    name = container_name(launch, container)
    labels = {**_labels(launch), CONTAINER_LABEL: str(container)}
    pod = merged(
        template or {},
        _pod(container, resources, launch, settings, python, labels),
        f"{role_of(container)} pod template",
    )
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": _annotations(launch),
        },
        "spec": {
            "replicas": 1,
            "serviceName": job_name(launch),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {**_selector(launch), CONTAINER_LABEL: str(container)}},
            "template": pod,
        },
    }
    secret = _secret(launch, settings, name, {BOOTSTRAP_KEY: bootstrap})
    secret["metadata"]["labels"][CONTAINER_LABEL] = str(container)
    return [secret, stateful_set]


def grace_s(launch: Launch) -> int:
    """How long a pod may take to end: as long as its executor, and a little more to tidy up."""
    return math.ceil(stop_limit_s(launch)) + 10


def _pod(
    container: int,
    resources: Resources,
    launch: Launch,
    settings: Settings,
    python: Sequence[str],
    labels: Mapping[str, str],
) -> Object:
    role = role_of(container)
    volumes: list[Object] = [
        {
            "name": "heron-bootstrap",
            "secret": {"secretName": container_name(launch, container), "defaultMode": 0o440},
        },
        {"name": "heron-work", "emptyDir": {}},
        {"name": "heron-tmp", "emptyDir": {}},
    ]
    mounts: list[Object] = [
        {"name": "heron-bootstrap", "mountPath": _SECRET_DIR, "readOnly": True},
        {"name": "heron-work", "mountPath": _WORK_DIR},
        {"name": "heron-tmp", "mountPath": "/tmp"},
    ]
    for n, (name, path) in enumerate(sorted(settings.secrets.items())):
        volumes.append({"name": f"heron-secret-{n}", "secret": {"secretName": name, "defaultMode": 0o440}})
        mounts.append({"name": f"heron-secret-{n}", "mountPath": path, "readOnly": True})
    environment = _environment(settings)
    if role != role_of(0) and (sources := _user_secrets(launch)):
        volumes.append({"name": "heron-user-secrets", "projected": {"defaultMode": 0o440, "sources": sources}})
        mounts.append({"name": "heron-user-secrets", "mountPath": _USER_SECRETS_DIR, "readOnly": True})
        environment.append({"name": MOUNT_ENV, "value": _USER_SECRETS_DIR})
    engine: Object = {
        "name": role,
        "image": settings.image,
        "command": ["/bin/sh", "-c", _START, "heron"],
        "args": [
            *(word.replace("$(", "$$(") for word in python),  # Kubernetes expands $(NAME)
            "-m",
            "heronpy.container",
            f"{_WORK_DIR}/{BOOTSTRAP_KEY}",
            "--dir",
            f"{_WORK_DIR}/topologies",
        ],
        "env": environment,
        "resources": _resources(role, resources, settings),
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # its last words are in its status
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    if settings.image_pull_policy:
        engine["imagePullPolicy"] = settings.image_pull_policy
    spec: Object = {
        "automountServiceAccountToken": launch.statemgr.type == "kubernetes",
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s(launch),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UID,
            "runAsGroup": UID,
            "fsGroup": UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LOST_NODE_S}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _selector(launch)},
            }
        ],
        "containers": [engine],
        "volumes": volumes,
    }
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    metadata = {
        "labels": {**settings.pod_labels, **labels},
        "annotations": {**settings.pod_annotations, **_annotations(launch)},
    }
    return {"metadata": metadata, "spec": spec}


def _user_secrets(launch: Launch) -> list[Object]:
    """Files that Kubernetes makes of its own Secrets, for user code."""
    return [
        {"secret": {"name": found[0], "items": [{"key": found[1], "path": name}]}}
        for name, reference in sorted(launch.secrets.items())
        if (found := kubernetes_reference(reference)) is not None
    ]


def _environment(settings: Settings) -> list[Object]:
    own: list[Object] = [
        {"name": "HERON_ADVERTISE_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "HOME", "value": _WORK_DIR},
        {"name": "USER", "value": "heron"},  # the image need not know the uid
        {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},  # its file system is read-only
    ]
    for name, reference in sorted(settings.secret_keys.items()):
        secret, _, key = reference.partition(":")
        own.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return own


def _resources(role: str, resources: Resources, settings: Settings) -> Object:
    cores = f"{max(1, round(resources.cpu * 1000))}m"
    # Memory that is not there cannot be waited for, as CPU can: what a container may use is set aside for it.
    limits = {"memory": str(resources.ram_bytes)} | (
        {"cpu": cores} if settings.request_mode == "EQUAL_TO_LIMIT" else {}
    )
    limits |= settings.limits(role)
    requests = {"cpu": limits.get("cpu", cores), "memory": limits["memory"]} | dict(settings.requests(role))
    return {"limits": limits, "requests": requests}


def _secret(launch: Launch, settings: Settings, name: str, data: Mapping[str, bytes]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": _labels(launch),
            "annotations": _annotations(launch),
        },
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def _selector(launch: Launch) -> dict[str, str]:
    return {"app": "heron", TOPOLOGY_LABEL: _digest(launch)}


def _labels(launch: Launch) -> dict[str, str]:
    # A label takes fewer characters than a name may have: the name itself is an annotation.
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", launch.topology)[:63].strip("-._")
    return {**_selector(launch), "topology": label, "app.kubernetes.io/managed-by": "heron"}


def _annotations(launch: Launch) -> dict[str, str]:
    return {
        "heron/topology": launch.topology,
        "heron/topology-id": launch.topology_id,
        "heron/cluster-role-environ": f"{launch.cluster}/{launch.role}/{launch.environ}",
    }


def _digest(launch: Launch) -> str:
    return hashlib.sha256(launch.topology_id.encode()).hexdigest()[:10]
