"""Identities: one per container, and one each for the scheduler service, the CLI, the Tracker and metrics scrapers.

A process sends its own id with every call (`stmgr-3`); its identity is what its certificate says (`container-3`), once
as a URI for the server that it calls, and once as a DNS name for the client that dials it.
"""

from __future__ import annotations

import hashlib
import re

SCHEDULER = "scheduler"
CLI = "cli"
TRACKER = "tracker"

METRICS_DNS_NAME = "metrics.heron"
"""What every metrics endpoint of every topology is called beside its own name: a scrape job has one server name."""

_PROCESSES = {"tmaster": "container-0", "scheduler": SCHEDULER, "heron": CLI, "tracker": TRACKER}
_BOOTSTRAP = re.compile(r"bootstrap-[0-9]{1,9}")
_IN_CONTAINER = re.compile(r"(?:stmgr|metricsmgr|executor|heron-shell)-([0-9]{1,9})|container_([0-9]{1,9})_.+")


def container_identity(container: int) -> str:
    """The identity that all processes of a container share."""
    return f"container-{container}"


def is_container(identity: str) -> bool:
    return identity.startswith("container-")


def container_of(identity: str) -> int | None:
    """The number of the container that has this identity; None: it is not a container's."""
    return int(identity.removeprefix("container-")) if is_container(identity) else None


def bootstrap_identity(container: int) -> str:
    """The identity with which a container's host asks for the container's certificate, and can do nothing else."""
    return f"bootstrap-{container}"


def bootstraps(identity: str) -> int | None:
    """The number of the container that this identity may ask a certificate for; None: it is not a bootstrap's."""
    return int(identity.removeprefix("bootstrap-")) if identity.startswith("bootstrap-") else None


def identity_of(process: str) -> str:
    """The identity of the process with this id; empty if no process has such an id."""
    if _BOOTSTRAP.fullmatch(process):
        return process
    if found := _IN_CONTAINER.fullmatch(process):
        return container_identity(int(found[1] or found[2]))
    return _PROCESSES.get(process, "")


def uri_of(topology_id: str, identity: str) -> str:
    """The identity as a URI: `heron://<topology id>/container/3`, `heron://<topology id>/cli`."""
    return f"heron://{topology_id}/{identity.replace('-', '/')}"


def dns_name_of(topology_id: str, identity: str) -> str:
    """The identity as a DNS name. Of a digest, because a topology id may be longer than a label and have an `@`."""
    digest = hashlib.sha256(topology_id.encode()).hexdigest()[:16]
    return f"{identity}.{digest}.heron"
