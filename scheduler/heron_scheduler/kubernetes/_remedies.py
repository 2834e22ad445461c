"""What to change about what Kubernetes refuses. Pure."""

from __future__ import annotations

import re

_REMEDIES = (
    (r" cannot ", "ask for the rights in deploy/kubernetes/rbac.yaml"),
    (r"service ?account", "create it, or set heron.kubernetes.scheduler.serviceAccount"),
    (r"exceeded quota|must specify limits", "ask for less (topology.container.ram, .cpu), or have the quota raised"),
    (r"maximum .* usage per", "ask for less (topology.container.ram, .cpu), or have the namespace's limits raised"),
    (
        r"Image",
        "set heron.executor.docker.image, and a secret of the registry by heron.kubernetes.executor.pod.template",
    ),
    (r"PodSecurity|Container|is forbidden", "see heron.kubernetes.executor.pod.template and the namespace's policies"),
)
"""In this order: who may not do something is named like that, too."""


def remedy(said: str) -> str:
    """`; …` with what to do about a refusal of Kubernetes', or nothing."""
    return next((f"; {what}" for words, what in _REMEDIES if re.search(words, said)), "")
