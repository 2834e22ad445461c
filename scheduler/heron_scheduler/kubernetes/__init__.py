"""Topologies on Kubernetes: each container is a StatefulSet with one replica.

One template cannot describe containers that differ in size, and a StatefulSet gives up its highest ordinals only; so
there is one per container, with a Secret that has its bootstrap file, and one headless Service for all. Kubernetes
keeps them running; no process of the scheduler does. What the objects look like is decided by `manifests`, a pure
function. Keys are Heron's, where Heron has them: see `Settings`.
"""

from heron_scheduler.kubernetes._lost_pods import is_lost, release_lost_pods
from heron_scheduler.kubernetes._manifests import container_objects, service_object
from heron_scheduler.kubernetes._remedies import remedy
from heron_scheduler.kubernetes._scheduler import KubernetesScheduler
from heron_scheduler.kubernetes._settings import Settings
from heron_scheduler.kubernetes._status import status_of

__all__ = [
    "KubernetesScheduler",
    "Settings",
    "container_objects",
    "is_lost",
    "release_lost_pods",
    "remedy",
    "service_object",
    "status_of",
]
